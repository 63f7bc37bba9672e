"""Tile sizes of paged attention by measurement: every set that compiles and fits, in the shapes that are served most.

Writes engine/kernels/tuned/sm_NN.json. A set that is not faster than the formula's by two per cent in all shapes of its
class together is not written: the noise of the clock is of that size. A set with wrong results is not written either.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from benchmarks.kernels.attention import PagedStep, Shape
from benchmarks.kernels.case import Call
from benchmarks.kernels.timing import Clock, WallClock
from engine.kernels.gpu.attention_tiles import AttentionTiles, formula_tiles
from engine.kernels.gpu.merge_states import merge_states
from engine.kernels.gpu.paged_attention import Parts, can_merge, launch
from engine.kernels.gpu.tuning import Key, as_entry

#: Shapes of one class: the tiles are chosen for all of them together.
CLASSES: Sequence[Sequence[Shape]] = (
    (Shape(1, 1024, 1), Shape(1, 32768, 1), Shape(16, 1024, 1), Shape(64, 1024, 1), Shape(16, 8192, 1)),
    (Shape(1, 1024, 1, head_dim=64), Shape(64, 1024, 1, head_dim=64), Shape(16, 8192, 1, head_dim=64)),
    (Shape(1, 8192, 8192), Shape(1, 10240, 2048)),
    (Shape(1, 8192, 8192, head_dim=64), Shape(1, 10240, 2048, head_dim=64)),
)
QUICK: Sequence[Sequence[Shape]] = ((Shape(2, 40, 1, 4, 2, 16),),)
_LEAST_GAIN = 0.02
#: A set that is this many times slower than the formula's in one shape is not measured in the others.
_HOPELESS = 2.0
_TOLERANCE = 1.5e-2  #: of bfloat16, as in the tests


def sweep(
    clock: Clock | WallClock,
    architecture: int,
    device: torch.device,
    deadline: float,
    classes: Sequence[Sequence[Shape]],
) -> Iterator[dict[str, Any]]:
    """An entry for each class in which some set is faster than the formula's, and all measurements. No set is tried
    after the deadline (time.monotonic)."""
    for shapes in classes:
        if time.monotonic() > deadline:
            print(f"{shapes[0]}: not tuned, the time was over", flush=True)
            continue
        first = shapes[0]
        mode = "decode" if first.queries == 1 else "mixed"
        group_size = first.num_heads // first.num_kv_heads
        kind = (mode, torch.bfloat16, torch.bfloat16, first.head_dim, group_size, first.queries)
        steps = [(shape, PagedStep.of(shape, device)) for shape in shapes]
        formula = formula_tiles(*kind, architecture)  # type: ignore[arg-type]
        times = {formula: _times(clock, formula, steps, {})}
        expected = [step.output.clone() for _, step in steps]
        for tiles in _candidates(formula, times, is_decode=mode == "decode"):
            if tiles in times:
                continue
            if time.monotonic() > deadline:
                print(f"{first}: the best of {len(times)} sets, the time was over", flush=True)
                break
            for _, step in steps:
                step.output.fill_(float("nan"))
            try:
                found = _times(clock, tiles, steps, times[formula])
                for (shape, step), output in zip(steps, expected, strict=True):
                    if str(shape) in found:
                        torch.testing.assert_close(step.output, output, atol=_TOLERANCE, rtol=_TOLERANCE)
            except Exception as error:  # too much shared memory, too many registers: Triton has no class of its own
                print(f"{tiles}: {type(error).__name__}: {error}".splitlines()[0], flush=True)
            else:
                if len(found) == len(steps):
                    times[tiles] = found
        best = _best(formula, times)
        print(f"{first}: {best}, {_cost(times[best], times[formula]):.3f} of the formula's time", flush=True)
        if _cost(times[best], times[formula]) < 1 - _LEAST_GAIN:
            measured = {"microseconds": times[best], "formula_microseconds": times[formula]}
            yield as_entry(Key.of_attention(*kind), asdict(best)) | {"measured": measured}


def _cost(times: Mapping[str, float], formula: Mapping[str, float]) -> float:
    """Mean over the shapes of the time relative to the formula's, so that short ones count as much as long ones."""
    return sum(times[shape] / formula[shape] for shape in formula) / len(formula)


def _best(formula: AttentionTiles, times: Mapping[AttentionTiles, Mapping[str, float]]) -> AttentionTiles:
    return min(times, key=lambda tiles: _cost(times[tiles], times[formula]))


def _candidates(
    formula: AttentionTiles, times: Mapping[AttentionTiles, Mapping[str, float]], *, is_decode: bool
) -> Iterator[AttentionTiles]:
    """times: the measurements so far; other numbers of parts are tried with the best set only, because each set takes
    seconds to compile."""
    sizes, stages = ((formula.block_m,), (2, 3, 4, 5)) if is_decode else ((64, 128), (2, 3, 4))
    for block_m, block_t, num_warps, num_stages in itertools.product(sizes, (32, 64, 128), (4, 8), stages):
        if (block_m, num_warps) != (128, 4):  # which spills
            yield AttentionTiles(block_m, block_t, formula.part_tokens, num_warps, num_stages)
    if is_decode:
        best = _best(formula, times)
        yield from (replace(best, part_tokens=tokens) for tokens in (128, 512))


def _times(
    clock: Clock | WallClock,
    tiles: AttentionTiles,
    steps: Sequence[tuple[Shape, PagedStep]],
    formula: Mapping[str, float],
) -> dict[str, float]:
    """Ends with the first shape that takes far longer than with the formula's tiles."""
    times: dict[str, float] = {}
    for shape, step in steps:
        name = str(shape)
        times[name] = round(clock.microseconds(call_with(tiles, shape, step)), 2)
        if times[name] > _HOPELESS * formula.get(name, times[name]):
            break
    return times


def call_with(tiles: AttentionTiles, shape: Shape, s: PagedStep) -> Call:
    """Call gpu.attend_decode or gpu.attend_mixed with these tiles; prompts without parts."""
    operands = (s.query, s.pages, s.page_table, s.slots, s.context_lengths, s.output, s.options, None)
    if shape.queries > 1:
        return lambda: launch("mixed", tiles, *operands, starts=s.query_starts)
    limit, are_merged = s.workspace.outputs.shape[2], can_merge(s.query, s.pages, s.output)
    parts = Parts(s.workspace, limit, s.workspace.counts[0], are_merged=are_merged)

    def call() -> None:
        launch("decode", tiles, *operands, parts=parts)
        if not are_merged:
            merge_states(s.workspace.outputs, s.workspace.lse, parts.counts, s.output)

    return call
