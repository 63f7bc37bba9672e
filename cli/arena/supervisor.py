"""Runs the processes of one arena: starts them in order, restarts them, stops them in order.

It does not know the terminal: it calls `report` for events, and a view reads the state of `children`. One thread, one
event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from cli.arena.child import Child, ChildSpec, ChildState
from cli.arena.restart_policy import RestartPolicy
from cli.errors import CliError

_TRIM_LOGS_EVERY_S = 30.0
_MAX_FIRST_DEATHS = 5  #: about three seconds: an arena whose store cannot start at all says so and ends


class Supervisor:
    """Owns the children. `stages` are groups of processes: the first group starts alone; when it is ready, all others
    start together. Groups stop in the reverse order, one after another."""

    def __init__(
        self,
        stages: Sequence[Sequence[ChildSpec]],
        report: Callable[[str, str], None],
        on_change: Callable[[Sequence[Child]], None] = lambda children: None,
    ) -> None:
        """on_change: called with all processes after the state of one has changed."""
        self._report = report
        self._on_change = on_change
        self._tasks: list[asyncio.Task[None]] = []
        self._added: list[Child] = []
        self._stages = [
            [self._child(spec, _MAX_FIRST_DEATHS if index == 0 else None) for spec in stage]
            for index, stage in enumerate(stages)
        ]

    @property
    def children(self) -> list[Child]:
        """All processes, in starting order."""
        return [child for stage in self._in_order for child in stage]

    @property
    def _in_order(self) -> list[list[Child]]:
        """The groups; processes that were added stop after the last group and before all others."""
        return [*self._stages[:-1], self._added, *self._stages[-1:]]

    @property
    def everything_failed(self) -> bool:
        """True if every process was given up."""
        return all(child.state is ChildState.GIVEN_UP for child in self.children)

    async def start(self) -> None:
        """Start everything; raises CliError if the first group does not become ready."""
        first, *others = self._stages
        self._tasks += [asyncio.create_task(child.run()) for child in first]
        for child in first:
            if not await child.wait_ready():
                raise CliError(f"{child.spec.name} did not start.")
        self._tasks += [asyncio.create_task(child.run()) for stage in others for child in stage]
        self._tasks.append(asyncio.create_task(self._trim_logs()))

    def add(self, spec: ChildSpec) -> Child:
        """Start one more process beside the others, and keep it running until `remove` or the end."""
        child = self._child(spec, None)
        self._added.append(child)
        self._tasks.append(asyncio.create_task(child.run()))
        return child

    async def remove(self, child: Child) -> None:
        """Stop a process that was added, gracefully, and forget it."""
        await child.stop()
        if child in self._added:
            self._added.remove(child)
            self._on_change(self.children)

    async def stop(self) -> None:
        """Stop all processes gracefully, the last group first."""
        for stage in reversed(self._in_order):
            await asyncio.gather(*(child.stop() for child in stage))
        await self._end_tasks()

    async def kill(self) -> None:
        """Kill everything without draining. The store is last; every acknowledged vote is on disk already."""
        for stage in reversed(self._in_order):
            for child in stage:
                child.kill()
                child.state = ChildState.STOPPED
        await self._end_tasks()

    def _child(self, spec: ChildSpec, max_first_deaths: int | None) -> Child:
        def on_change() -> None:
            self._on_change(self.children)

        return Child(spec, self._report, RestartPolicy(), max_first_deaths=max_first_deaths, on_change=on_change)

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(_TRIM_LOGS_EVERY_S)
            for child in self.children:
                with contextlib.suppress(OSError):  # of one log; the next round tries again
                    child.trim_log()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                self._report("supervisor", f"internal error: {result!r}")
