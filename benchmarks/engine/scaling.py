"""Time of one step against its batch, its context, its page size and its prompt tokens.

The runner gets synthetic steps: sequences whose context is taken as computed, in pages of their own. No prompt is
computed, so a context of 4096 tokens costs one decode. For models with one layer type.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from engine.batch import PageTableUpdate, ScheduledSequence, StepPlan
from engine.config import EngineConfig
from engine.runner import LoadedModel, load_runner
from engine.runner.runner import run_step
from engine.sampling_params import SamplingParams

CONTEXT, BATCH, PAGE_TOKENS = 256, 8, 16
_LONGEST = 4096
_GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Point:
    """One kind of step; `varied` names the axis that it lies on."""

    varied: str
    batch: int
    context: int  #: tokens of each sequence, the step's own included
    new_tokens: int  #: of each sequence: 1 is a decode
    page_tokens: int


def points(*, is_quick: bool) -> Iterator[Point]:
    for batch in (1, 4) if is_quick else (1, 2, 4, 8, 16, 32, 64):
        yield Point("batch", batch, CONTEXT, 1, PAGE_TOKENS)
    for context in (64,) if is_quick else (64, 256, 1024, 2048, _LONGEST):
        yield Point("context", BATCH, context, 1, PAGE_TOKENS)
    for page_tokens in (8,) if is_quick else (8, 16, 32, 64):
        yield Point("page_tokens", BATCH, 1024, 1, page_tokens)
    for new_tokens in (32,) if is_quick else (16, 64, 256, 512, 1024):
        yield Point("prompt_tokens", 1, new_tokens, new_tokens, PAGE_TOKENS)


def measure_scaling(
    config: Callable[[int, int], EngineConfig], *, repeats: int, is_quick: bool, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """`config(page_tokens, max_model_len)`; one row for each point."""
    rows = []
    loaded: LoadedModel | None = None
    for point in sorted(points(is_quick=is_quick), key=lambda point: point.page_tokens):
        if loaded is None or loaded.pool_plan.types[0].page_tokens != point.page_tokens:
            if loaded is not None:
                loaded.runner.close()
            loaded = load_runner(config(point.page_tokens, _LONGEST))
        times = _step_seconds(loaded, point, repeats)
        rows.append(
            {
                **asdict(point),
                "median_ms": round(1e3 * statistics.median(times), 3),
                "best_ms": round(1e3 * min(times), 3),
            }
        )
        progress(str(rows[-1]))
    return rows


def _step_seconds(loaded: LoadedModel, point: Point, repeats: int) -> list[float]:
    (kind,) = loaded.pool_plan.types
    pages = -(-point.context // kind.page_tokens)
    updates = tuple(
        PageTableUpdate(slot, kind.name, 0, tuple(range(1 + slot * pages, 1 + (slot + 1) * pages)))
        for slot in range(point.batch)
    )
    sequences = tuple(
        ScheduledSequence(
            sequence_id=slot,
            slot=slot,
            token_ids=tuple(100 + (slot + index) % 1000 for index in range(point.new_tokens)),
            start=point.context - point.new_tokens,
            num_samples=1,
            params=_GREEDY,
            seeds=(slot,),
            output_index=1,
        )
        for slot in range(point.batch)
    )
    run_step(loaded.runner, StepPlan(0, updates, (), sequences))
    times = []
    for step in range(1, repeats + 1):
        started = time.perf_counter()
        run_step(loaded.runner, StepPlan(step, (), (), sequences))
        times.append(time.perf_counter() - started)
    return times
