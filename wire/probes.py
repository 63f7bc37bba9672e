"""Answers of the probes: /health, /ready and /version of controller and worker."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.workers import WorkerState


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProcessHealth(_Frozen):
    """One process that a supervisor (`agon up`) keeps alive."""

    name: str = Field(description="`store`, `controller`, `webui`, or `worker`, with its model where it serves but one")
    state: str = Field(
        description="`waiting`, `starting`, `ready`, `not ready`, `restarting` (it died and will be started again), "
        "`failed` (its settings or its checkpoint must be corrected), `stopping` or `stopped`"
    )
    restarts: int = Field(ge=0, description="starts after the first one")


class ProcessList(_Frozen):
    """The file in which a supervisor says how its processes are."""

    processes: tuple[ProcessHealth, ...]


class Health(_Frozen):
    """`GET /health` of a controller."""

    status: Literal["ok"]
    processes: tuple[ProcessHealth, ...] | None = Field(
        default=None, description="processes of `agon up` that are not ready; absent where no supervisor tells"
    )


class Ready(_Frozen):
    """`GET /ready` of a controller whose store answers."""

    status: Literal["ready"]
    models: int = Field(description="models that have a ready worker")
    forwarded_address: Literal["believed", "ignored"] | None = Field(
        default=None,
        description="whether the X-Forwarded-For of this request counts; `ignored`: its sender's visitors count as "
        "one. Absent where the request has none",
    )


class Version(_Frozen):
    """`GET /version` of a controller."""

    name: Literal["agon"]
    version: str


class WorkerHealth(_Frozen):
    """`GET /health` of a worker."""

    status: Literal["ok", "stalled"]
    state: WorkerState


class WorkerReady(_Frozen):
    """`GET /ready` of a worker."""

    state: WorkerState
    reason: str | None = Field(default=None, description="why no controller has ever registered it; absent else")


class WorkerVersion(_Frozen):
    """`GET /version` of a worker."""

    version: str
