"""What parent and child say to each other over their socket pair: a length, the number of a class, and JSON of a value
of that class (engine/parallel/codec.py). One message of the child carries all deltas of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

from engine.adapter_info import AdapterInfo
from engine.backend import Abort, Add, AddAdapter, Drain, Picture, RemoveAdapter, Stop
from engine.config import EngineConfig, ModelLimits, StepLimits
from engine.errors import (
    CheckpointError,
    CheckpointUnavailable,
    EngineError,
    NotDivisible,
    OperatorsUnavailable,
    RankLost,
)
from engine.memory.ledger import PoolCell
from engine.memory.spec import PoolPlan
from engine.model_info import ModelInfo
from engine.parallel.codec import Codec
from engine.request import RequestDelta
from engine.stats import EngineStats

#: Length of what follows the head, and the number of its class.
HEAD = Struct("<IB")

#: What loading a model may raise, by name. Of other errors the nearest base is raised in the parent.
_ERRORS: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        CheckpointError,
        CheckpointUnavailable,
        NotDivisible,
        OperatorsUnavailable,
        RankLost,
        EngineError,
        MemoryError,
        OSError,
        ValueError,
    )
} | {"OutOfMemoryError": MemoryError}  # torch's: memory of a device


@dataclass(frozen=True, slots=True)
class Load:
    """The first message to the child."""

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded."""

    limits: ModelLimits
    step_limits: StepLimits
    pool_plan: PoolPlan
    info: ModelInfo
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class LoadError:
    """The model could not be loaded; the last message."""

    kind: str
    sentence: str

    @classmethod
    def of(cls, error: BaseException) -> "LoadError":
        """The error as a message."""
        kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS), "")
        return cls(kind, str(error) if kind else repr(error))

    @property
    def is_expected(self) -> bool:
        """Whether it is one of the errors that loading raises on purpose or for want of a resource."""
        return self.kind in _ERRORS

    def as_exception(self) -> Exception:
        """The error again: of the same class if that is a known one."""
        return _ERRORS.get(self.kind, RuntimeError)(self.sentence)


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step has brought, or several if the parent was slow."""

    deltas: tuple[RequestDelta, ...]
    stats: EngineStats
    num_started: int  #: requests that wait no more for their first step
    num_started_tokens: int  #: their prompt tokens


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer to Picture."""

    ticket: int
    cells: tuple[PoolCell, ...]


@dataclass(frozen=True, slots=True)
class AdapterDone:
    """The answer to AddAdapter or RemoveAdapter."""

    ticket: int
    info: AdapterInfo | None
    refusal: str


@dataclass(frozen=True, slots=True)
class Died:
    """An error has ended the engine; nothing but the end of the process follows."""

    sentence: str


class Language:
    """The messages of one direction."""

    def __init__(self, kinds: Sequence[type]) -> None:
        self._kinds = list(kinds)
        self._codecs: list[Codec[Any]] = [Codec(kind) for kind in kinds]

    def encode(self, message: object) -> bytes:
        """A whole message, with its head."""
        number = self._kinds.index(type(message))
        body = self._codecs[number].encode(message)
        return HEAD.pack(len(body), number) + body

    def decode(self, number: int, body: bytes) -> Any:
        """The value of a message whose head has been read. Raises ValueError for what `encode` did not make."""
        return self._codecs[number].decode(body)


def to_child() -> Language:
    """What the parent says."""
    return Language((Load, Add, Abort, Picture, AddAdapter, RemoveAdapter, Drain, Stop))


def to_parent() -> Language:
    """What the child says."""
    return Language((Ready, LoadError, Stepped, Shown, AdapterDone, Died))
