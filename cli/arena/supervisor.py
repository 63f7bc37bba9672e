"""Runs the processes of one arena: starts them in order, keeps them alive, stops them in order.

Knows nothing of terminals: what happens goes to `report`, and `children` tell their state to whoever wants to draw it.
One thread, one event loop.
"""

import asyncio
from collections.abc import Callable, Sequence

from cli.arena.child import Child, ChildSpec, ChildState
from cli.arena.restart_policy import RestartPolicy
from cli.errors import CliError

_TRIM_LOGS_EVERY_S = 30.0


class Supervisor:
    """`stages`: groups of processes. The first group starts alone; when it is ready, all others start together. They
    stop in the reverse order, one group after another."""

    def __init__(self, stages: Sequence[Sequence[ChildSpec]], report: Callable[[str, str], None]) -> None:
        self._stages = [[Child(spec, report, RestartPolicy()) for spec in stage] for stage in stages]
        self._report = report
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def children(self) -> list[Child]:
        return [child for stage in self._stages for child in stage]

    @property
    def everything_failed(self) -> bool:
        return all(child.state is ChildState.GIVEN_UP for child in self.children)

    async def start(self) -> None:
        """The first group must answer before the others start; raises CliError when it does not."""
        first, *others = self._stages
        self._tasks += [asyncio.create_task(child.run()) for child in first]
        for child in first:
            if not await child.wait_ready():
                raise CliError(f"{child.spec.name} did not start.")
        self._tasks += [asyncio.create_task(child.run()) for stage in others for child in stage]
        self._tasks.append(asyncio.create_task(self._trim_logs()))

    async def stop(self) -> None:
        for stage in reversed(self._stages):
            await asyncio.gather(*(child.stop() for child in stage))
        await self._end_tasks()

    async def kill(self) -> None:
        """No draining. The store goes last; it has every acknowledged vote on disk already."""
        for stage in reversed(self._stages):
            for child in stage:
                child.kill()
                child.state = ChildState.STOPPED
        await self._end_tasks()

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(_TRIM_LOGS_EVERY_S)
            for child in self.children:
                child.trim_log()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                self._report("supervisor", f"internal error: {result!r}")
