"""Replicas as processes of this machine, under the supervisor of `agon up`. A Placement."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cli.arena.child import Child, ChildSpec, ChildState
from cli.arena.placement.placement import MachineView, PlacementView, Replica, ReplicaState, ReplicaView
from cli.arena.ports import free_port
from cli.arena.supervisor import Supervisor

_STATES: dict[ChildState, ReplicaState] = {
    ChildState.WAITING: "waiting",
    ChildState.STARTING: "starting",
    ChildState.READY: "ready",
    ChildState.UNREADY: "not ready",
    ChildState.BACKING_OFF: "restarting",
    ChildState.GIVEN_UP: "failed",
    ChildState.STOPPING: "stopping",
    ChildState.STOPPED: "stopping",
}


def state_of(child: Child) -> ReplicaState:
    """The state of a supervised worker process as that of a replica."""
    return _STATES[child.state]


def problem_of(child: Child) -> str:
    """How the process ended the last time, with the last line that it wrote; empty if it never did."""
    last = child.last_words.rpartition("\n")[2].strip()
    return f"{child.last_death}: {last}" if last else child.last_death


@dataclass(frozen=True, slots=True)
class _Placed:
    replica: Replica
    child: Child
    url: str


class LocalPlacement:
    """See Placement. `make_spec` makes the process of a replica that listens on a port."""

    has_machines = False

    def __init__(
        self, supervisor: Supervisor, make_spec: Callable[[Replica, int], ChildSpec], *, first_port: int
    ) -> None:
        self._supervisor = supervisor
        self._make_spec = make_spec
        self._first_port = first_port
        self._placed: dict[str, _Placed] = {}
        self._ending: list[_Placed] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, replicas: Sequence[Replica]) -> None:
        """See Placement."""
        wanted = {replica.id: replica for replica in replicas}
        for name, placed in list(self._placed.items()):
            if wanted.get(name) != placed.replica:
                del self._placed[name]
                self._ending.append(placed)
                task = asyncio.get_running_loop().create_task(self._end(placed))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        for replica in replicas:
            if replica.id not in self._placed:
                self._start(replica)

    def view(self) -> PlacementView:
        """See Placement."""
        placed = (*self._placed.values(), *self._ending)
        return PlacementView(
            machines=(MachineView(name="this machine", address="127.0.0.1"),),
            replicas=tuple(
                ReplicaView(
                    id=one.replica.id,
                    model=one.replica.model,
                    state=state_of(one.child),
                    machine="this machine",
                    url=one.url,
                    pid=one.child.pid,
                    restarts=one.child.num_restarts,
                    problem=problem_of(one.child),
                )
                for one in placed
            ),
        )

    async def end(self) -> None:
        """See Placement. The supervisor ends its processes itself."""

    def _start(self, replica: Replica) -> None:
        taken = {int(re.findall(r"\d+", one.url)[-1]) for one in (*self._placed.values(), *self._ending)}
        port = free_port("127.0.0.1", self._first_port, taken)
        child = self._supervisor.add(self._make_spec(replica, port))
        self._placed[replica.id] = _Placed(replica, child, f"http://127.0.0.1:{port}")

    async def _end(self, placed: _Placed) -> None:
        await self._supervisor.remove(placed.child)
        self._ending.remove(placed)
