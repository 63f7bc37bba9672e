"""One model of a host: its configuration, its state, and what it is made of while it is resident.

The record belongs to the host's thread (host_thread.py); reading weights runs in a thread of its own.
"""

import logging
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from engine.backend import Receiver
from engine.config import EngineConfig
from engine.constraints.compiler import GrammarCompiler
from engine.core import EngineCore
from engine.loaded_engine import compiler_of
from engine.memory.spec import LayerSpec

if TYPE_CHECKING:
    from engine.runner.load import ReadModel
    from engine.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

#: loading: it has never served. resident: its weights are in memory, and steps compute. asleep: it has neither weights
#: of its own nor pages; requests wait. waking: as asleep, while weights are read. ending: it will be gone.
ModelState = Literal["loading", "resident", "asleep", "waking", "ending"]


@dataclass(slots=True)
class HostedModel:
    """Owner of what a model is made of. Changed by the host's thread only; others may read `state`."""

    name: str
    config: EngineConfig
    receiver: Receiver
    floor_bytes: int
    ceiling_bytes: int | None
    state: ModelState = "loading"
    core: EngineCore | None = None  #: once it has been loaded; it stays while the model sleeps
    read: "ReadModel | None" = None  #: while it is resident
    tokenizer: "Tokenizer | None" = None  #: kept while it sleeps
    compiler: GrammarCompiler | None = None  #: kept while it sleeps
    layers: tuple[LayerSpec, ...] = ()
    num_threads: int = 1
    is_draining: bool = False
    is_stopping: bool = False
    waiting: list["Future[None]"] = field(default_factory=list)  #: of callers of `wake`

    @property
    def running_core(self) -> EngineCore:
        """The core of a model that has been loaded."""
        assert self.core is not None
        return self.core

    def settle(self, error: BaseException | None = None) -> None:
        """Tell all callers of `wake` that it is over."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


def read_weights(model: HostedModel, team: int) -> tuple["ReadModel", GrammarCompiler]:
    """The model's weights, and its tokenizer and its constraints' compiler if it has none yet. In a thread of its own.
    team: CPU threads of the host. Raises CheckpointError."""
    import torch

    from engine.runner.load import read_model

    started = time.perf_counter()
    torch.set_num_threads(team)  # of this thread; a small model takes one
    read = read_model(model.config, tokenizer=model.tokenizer)
    compiler = model.compiler
    if compiler is None:
        compiler = compiler_of(read.tokenizer, read.parts.limits, closes_answers=model.config.close_answers)
        compiler.prepare()
    _log.info("read the weights of %s in %.2f s", model.name, time.perf_counter() - started)
    return read, compiler


def layers_of(read: "ReadModel", name: str) -> tuple[LayerSpec, ...]:
    """What the model's layers store, with its name."""
    from engine.runner.pool import layers_of

    parts = read.parts
    found = layers_of(parts.config, parts.model, parts.limits, parts.kv_dtype)
    return tuple(replace(spec, model=name) for spec in found)
