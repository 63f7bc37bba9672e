"""What the inputs of a model's layers look like: it reads a short text before its weights are rounded, so that they are
rounded best where inputs are large (the importance of engine/kernels/quantised.py).

The model is loaded for that in 16 or 32 bits, once for each packed weights file.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from engine.batch import PageTableUpdate, ScheduledSequence, StepPlan
from engine.config import EngineConfig, ModelLimits
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import LinearFunction, Operators
from engine.kernels.quantised import Matrix, QuantisedMatrix
from engine.memory.planning.planner import pool_of
from engine.memory.spec import NUM_NULL_LARGE_PAGES
from engine.models.causal_lm import CausalLM
from engine.runner.calibration_text import TEXT
from engine.runner.eager_runner import EagerRunner
from engine.runner.pool import design_of
from engine.runner.runner import run_step
from engine.sampling_params import SamplingParams
from engine.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

#: Larger models are rounded without: reading the text takes seconds per billion parameters, and the machine may have no
#: memory for their 16-bit weights.
MAX_PARAMETERS = 4_000_000_000
_PIECE_TOKENS = 256  #: of a sequence of the text


class _Watching(CppOperators):
    """The operators of unrounded weights, which note the mean squares of the inputs of layers."""

    def __init__(self, operators: CppOperators) -> None:
        """operators: those for which the model is to be rounded."""
        super().__init__(operators.library, operators.dtype)
        self._plain = CppOperators(operators.library, operators.dtype)
        self._sums: list[torch.Tensor] = []  # of each matrix, [in]
        self._counts: list[int] = []

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """No operator of the library, so that every layer and every expert calls it."""
        multiply = self._plain.linear(weight, bias)
        if isinstance(weight, QuantisedMatrix):
            return multiply
        index = len(self._sums)
        self._sums.append(torch.zeros(weight.shape[1]))
        self._counts.append(0)

        def watch(x: torch.Tensor) -> torch.Tensor:
            self._sums[index] += x.float().square().sum(dim=0)
            self._counts[index] += len(x)
            return multiply(x)

        return watch

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """Not watched: it is rounded to 8 bits."""
        return self._plain.head(weight, bias)

    def measured(self) -> list[torch.Tensor | None]:
        """The importance of the inputs of each matrix, [in] float32, 1 on average; None: it had none, or infinite
        ones."""
        found: list[torch.Tensor | None] = []
        for sums in self._sums:
            mean = float(sums.mean())
            found.append((sums / mean) if mean > 0 and math.isfinite(mean) else None)
        return found


def importance_of(
    build: Callable[[Operators], CausalLM], operators: CppOperators, config: EngineConfig, tokenizer: Tokenizer
) -> list[torch.Tensor | None]:
    """CppOperators.importance: of the inputs of each matrix, in the order in which `build` binds them."""
    started = time.perf_counter()
    watching = _Watching(operators)
    with torch.inference_mode():
        model = build(watching)
    token_ids = [token for token in tokenizer.encode(TEXT, add_special_tokens=True) if token < model.vocab_size]
    _read(model, watching, config, token_ids)
    _log.info(
        "read %d tokens to see where weights have to be exact: %.1f s", len(token_ids), time.perf_counter() - started
    )
    return watching.measured()


def _read(model: CausalLM, operators: CppOperators, config: EngineConfig, token_ids: Sequence[int]) -> None:
    """Compute the tokens in pieces, each a sequence of its own."""
    limits = ModelLimits(min(_PIECE_TOKENS, model.max_positions), model.vocab_size, frozenset())
    design = design_of(replace(config, kv_budget=None), model, limits, operators.dtype)
    # No step crosses a checkpoint of a recurrent state.
    length = min([limits.max_model_len, *(kind.page_tokens for kind in design.types if kind.spec.kind == "recurrent")])
    updates, first = [], NUM_NULL_LARGE_PAGES
    for kind in design.types:
        ratio, entries = design.ratio(kind), -(-length // kind.page_tokens)
        updates.append(PageTableUpdate(0, kind.name, 0, tuple(range(first * ratio, first * ratio + entries))))
        first += -(-entries // ratio)
    runner = EagerRunner(
        model,
        plan=pool_of(design, first * design.large_page_bytes),
        limits=limits,
        max_running=1,
        dtype=operators.dtype,
        device=torch.device("cpu"),
        operators=operators,
    )
    params = SamplingParams(temperature=0.0)
    for step, at in enumerate(range(0, len(token_ids), length)):
        piece = tuple(token_ids[at : at + length])
        sequence = ScheduledSequence(step, 0, piece, 0, 0, params, (), 0, None, len(piece))
        run_step(runner, StepPlan(step, tuple(updates), (), (sequence,)))
    runner.close()
