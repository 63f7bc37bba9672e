"""Tile sizes of paged attention by measurement: every set that compiles and fits, in the shapes that are served most.

Writes engine/kernels/tuned/sm_NN.json. A set that is not faster than the formula's by two per cent in all shapes of its
class together is not written: the noise of the clock is of that size.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.kernels.attention import PagedStep, Shape
from benchmarks.kernels.case import Call
from benchmarks.kernels.timing import Clock
from engine.kernels.gpu.attention_tiles import AttentionTiles, formula_tiles, num_parts
from engine.kernels.gpu.merge_states import merge_states
from engine.kernels.gpu.paged_attention import Parts, launch
from engine.kernels.gpu.tuning import Key, as_entry

#: Shapes of one class: the tiles are chosen for all of them together.
CLASSES: Sequence[Sequence[Shape]] = (
    (Shape(1, 1024, 1), Shape(1, 32768, 1), Shape(16, 1024, 1), Shape(64, 1024, 1), Shape(16, 8192, 1)),
    (Shape(1, 1024, 1, head_dim=64), Shape(64, 1024, 1, head_dim=64), Shape(16, 8192, 1, head_dim=64)),
    (Shape(1, 8192, 8192), Shape(1, 10240, 2048)),
    (Shape(1, 8192, 8192, head_dim=64), Shape(1, 10240, 2048, head_dim=64)),
)
_LEAST_GAIN = 0.02


def sweep(clock: Clock, architecture: int, device: torch.device) -> Iterator[dict[str, Any]]:
    """An entry for each class where something is faster than the formula, and what was measured."""
    for shapes in CLASSES:
        first = shapes[0]
        mode = "decode" if first.queries == 1 else "mixed"
        group_size = first.num_heads // first.num_kv_heads
        kind = (mode, torch.bfloat16, torch.bfloat16, first.head_dim, group_size, first.queries)
        steps = [(shape, PagedStep.of(shape, device)) for shape in shapes]
        formula = formula_tiles(*kind, architecture)  # type: ignore[arg-type]
        times = {formula: _times(clock, formula, steps)}
        for tiles in _candidates(formula, is_decode=mode == "decode"):
            try:
                times.setdefault(tiles, _times(clock, tiles, steps))
            except Exception as error:  # too much shared memory, too many registers: Triton has no class for these
                print(f"{tiles}: {type(error).__name__}", flush=True)
        best = min(times, key=lambda tiles: _cost(times[tiles], times[formula]))
        print(f"{first}: {best}, {_cost(times[best], times[formula]):.3f} of the formula's time", flush=True)
        if _cost(times[best], times[formula]) < 1 - _LEAST_GAIN:
            measured = {"microseconds": times[best], "formula_microseconds": times[formula]}
            yield as_entry(Key.of_attention(*kind), asdict(best)) | {"measured": measured}


def _cost(times: Mapping[str, float], formula: Mapping[str, float]) -> float:
    """Mean over the shapes of the time relative to the formula's, so that short ones count as much as long ones."""
    return sum(times[shape] / formula[shape] for shape in formula) / len(formula)


def _candidates(formula: AttentionTiles, *, is_decode: bool) -> Iterator[AttentionTiles]:
    sizes = (formula.block_m,) if is_decode else (64, 128)
    parts = (128, 256, 512) if is_decode else (formula.part_tokens,)
    for values in itertools.product(sizes, (32, 64, 128), parts, (4, 8), (2, 3, 4, 5)):
        yield AttentionTiles(*values)


def _times(clock: Clock, tiles: AttentionTiles, steps: Sequence[tuple[Shape, PagedStep]]) -> dict[str, float]:
    return {str(shape): round(clock.microseconds(call_with(tiles, shape, step)), 2) for shape, step in steps}


def call_with(tiles: AttentionTiles, shape: Shape, s: PagedStep) -> Call:
    """As gpu.attend_decode or gpu.attend_mixed with these tiles."""
    operands = (s.query, s.pages, s.page_table, s.slots, s.context_lengths, s.output, s.options, None)
    if shape.queries > 1:
        return lambda: launch("mixed", tiles, *operands, starts=s.query_starts)
    limit = s.workspace.outputs.shape[2]
    splits = num_parts(tiles, shape.context, None, limit)
    if splits == 1:
        return lambda: launch("decode", tiles, *operands)

    def call() -> None:
        launch("decode", tiles, *operands, parts=Parts(s.workspace, 0, splits, limit))
        merge_states(s.workspace.outputs[:, :, :splits], s.workspace.lse[:, :, :splits], s.output)

    return call
