"""What the two sides of a serving engine tell each other: AsyncEngine, which has the callers, and a backend, which
computes in a thread (engine_thread.py) or in a process of its own (engine_process). Frozen values; no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.adapter_info import AdapterInfo
from engine.config import ModelLimits, StepLimits
from engine.constraints.compiler import GrammarCompiler
from engine.errors import EngineDead
from engine.memory.ledger import PoolCell
from engine.request import RequestDelta
from engine.sampling_params import PoolingParams, SamplingParams
from engine.scheduling.admission_control import AdmissionControl
from engine.stats import EngineStats

if TYPE_CHECKING:
    from engine.model_info import ModelInfo
    from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Add:
    """Compute a request, which holds a reservation of admission control."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    resume_token_ids: tuple[int, ...]
    cache_salt: bytes
    pooling: PoolingParams | None = None  #: the request is for a vector, and `params` are NO_OUTPUT
    adapter: str = ""  #: the name of a loaded one; empty: the base alone


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request within one step. An unknown id is ignored."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Look at the page pool between two steps; the answer has the same ticket."""

    ticket: int
    max_cells: int


@dataclass(frozen=True, slots=True)
class AddAdapter:
    """Load an adapter between two steps; the answer has the same ticket."""

    ticket: int
    name: str
    folder: str


@dataclass(frozen=True, slots=True)
class RemoveAdapter:
    """Unload an adapter once its requests have ended; the answer comes then."""

    ticket: int
    name: str


@dataclass(frozen=True, slots=True)
class Drain:
    """End when there is nothing left to do."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End now; what still runs is aborted."""


Command = Add | Abort | Picture | AddAdapter | RemoveAdapter | Drain | Stop


@dataclass(frozen=True, slots=True)
class Serving:
    """What callers need of a model that is loaded."""

    admission: AdmissionControl
    limits: ModelLimits
    step_limits: StepLimits
    info: "ModelInfo"
    tokenizer: "Tokenizer | None"  #: None only for random weights without a tokenizer.json
    stats: EngineStats  #: before the first step
    compiler: GrammarCompiler


class Outlet(Protocol):
    """Who hears what the engine's loop has done, in the loop's thread."""

    def on_step(self, deltas: Sequence[RequestDelta], stats: EngineStats) -> None:
        """After each step, and after some seconds without any, because rates change then."""
        ...

    def on_picture(self, ticket: int, cells: tuple[PoolCell, ...]) -> None:
        """The answer to Picture."""
        ...

    def on_adapter(self, ticket: int, info: AdapterInfo | None, refusal: str) -> None:
        """The answer to AddAdapter, with what was loaded, or to RemoveAdapter. refusal: why not; empty: it was done."""
        ...

    def on_death(self, error: EngineDead) -> None:
        """The loop has ended after an error: no open request gets another delta."""
        ...


class Receiver(Outlet, Protocol):
    """Who hears of a backend's whole life, in one thread of the backend."""

    def on_loaded(self, serving: Serving) -> None:
        """It serves from now on. Called once, unless on_load_error is."""
        ...

    def on_load_error(self, error: BaseException) -> None:
        """The model could not be loaded. Nothing follows but on_end."""
        ...

    def on_end(self) -> None:
        """Model and memory are gone. The last call, in any case."""
        ...


class Backend(Protocol):
    """The side that computes. Commands are carried out in their order, between two steps."""

    def send(self, command: Command) -> None:
        """From any thread; never blocks. After the end, commands are dropped."""
        ...

    def is_alive(self) -> bool:
        """Whether all processes of the model run; from any thread, once it is loaded."""
        ...

    def kill(self) -> None:
        """End without order, also while the model is being loaded, where that is possible."""
        ...
