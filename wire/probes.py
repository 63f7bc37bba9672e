"""Answers of the probes: /health, /ready and /version of controller and worker."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.workers import WorkerState


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Health(_Frozen):
    """`GET /health` of a controller."""

    status: Literal["ok"]


class Ready(_Frozen):
    """`GET /ready` of a controller whose store answers."""

    status: Literal["ready"]
    models: int = Field(description="models that have a ready worker")


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


class WorkerVersion(_Frozen):
    """`GET /version` of a worker."""

    version: str
