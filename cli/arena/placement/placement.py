"""Where the worker processes of an arena come from: the seam between what should run and what runs it.

A placement is told the whole list of replicas that should run, as often as that changes, and keeps them running until
the list says otherwise. Two forms: processes of this machine (local_placement.py) and detached actors of Ray on several
(on_ray/). Whatever else starts a worker with a token and a controller's address (`agon join`, systemd, Slurm,
Kubernetes) needs no placement: its registration is enough.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from wire.model_names import ModelName
from wire.served_models import Source

MAX_REPLICAS = 64  #: of one model

#: A machine's label, `NAME` or `NAME=VALUE`.
LABEL_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?(=[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
Label = Annotated[str, Field(pattern=LABEL_PATTERN)]

ReplicaState = Literal["waiting", "starting", "ready", "not ready", "restarting", "failed", "stopping"]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Needs(_Frozen):
    """What one replica of a model takes of a machine. A replica is never divided: with tensor parallelism all its
    processes and GPUs are on one machine."""

    cpus: float = Field(default=1.0, ge=0, le=4096, description="cores; the worker computes on as many threads")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs; more than one: tensor parallelism")
    label: Label | None = Field(default=None, description="only on machines that have it")


class Replica(_Frozen):
    """One worker process that should run, with one model. `id` names it for as long as it is wanted."""

    id: str
    model: ModelName
    source: Source
    needs: Needs = Needs()


class ReplicaView(_Frozen):
    """One replica as it is."""

    id: str
    model: str
    state: ReplicaState
    machine: str = Field(default="", description="where it runs; empty: no machine has room for it yet")
    url: str = Field(default="", description="of its worker process")
    pid: int | None = None
    restarts: int = Field(default=0, description="starts after the first one, on any machine")
    problem: str = Field(default="", description="how it ended the last time, or why it does not start")


class MachineView(_Frozen):
    """One machine of the cluster."""

    name: str
    address: str
    is_alive: bool = True
    labels: tuple[str, ...] = ()
    cpus: float = 0.0
    gpus: float = 0.0


class PlacementView(_Frozen):
    """Machines and replicas at one moment."""

    machines: tuple[MachineView, ...] = ()
    replicas: tuple[ReplicaView, ...] = ()
    problem: str | None = Field(default=None, description="why nothing can be placed at the moment")


class Placement(Protocol):
    """Runs replicas. `want` and `view` return at once; calls come from one event loop."""

    @property
    def has_machines(self) -> bool:
        """Whether replicas may ask for GPUs and labels, because machines are known by them."""
        ...

    def want(self, replicas: Sequence[Replica]) -> None:
        """From now on these replicas and no others. A replica that is no longer wanted finishes its answers and ends.
        One whose id is known keeps running, unless its source or needs differ: then it is replaced."""
        ...

    def view(self) -> PlacementView:
        """The replicas that are wanted or still end, by id, and the machines."""
        ...

    async def end(self) -> None:
        """End all replicas with the arena. Returns when they have ended, or when it cannot be known."""
        ...
