"""Samples one token per row: greedy, or the inverse of the cumulative distribution after top-k, top-p and min-p.

Nothing is sorted. Only spans of logits are read again whose largest logit is not below a bound that is computed from
the spans' maxima. The candidates, scores at or above the bound, are written side by side; each is then compared with
all the others, which gives the limits of top-k and top-p without any exchange between threads. Of more than
SAMPLING_CANDIDATES, in flat rows, the limits are found by bisection instead. Sums are in float64 where rounding could
change the sampled token; random numbers are bit-equal to engine/sampling/philox.py. R = rows, V = vocabulary.
"""

import torch
import triton
import triton.language as tl

from engine import batch
from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.spans import (
    bound_of,
    choose_spans,
    chosen_scores,
    row_configuration,
    scan_spans,
)
from engine.kernels.step_kernels import SAMPLING_CANDIDATES, SamplingWorkspace

NOWHERE = tl.constexpr(2**30)
NO_TOKEN = tl.constexpr(batch.NO_TOKEN)
#: exp(FLOOR) is 0 in float32: a token with a lower score is never sampled, so such scores need not be distinguished.
FLOOR = tl.constexpr(-110.0)


@triton.jit
def _draw(
    logits_ptr,
    temperatures_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    seeds_ptr,
    counters_ptr,
    token_ids_ptr,
    maxima_ptr,
    masses_ptr,
    chosen_ptr,
    candidates_ptr,
    slots_ptr,
    last_tokens_ptr,
    row_stride,
    span_stride,
    vocab_size,
    SPAN: tl.constexpr,
    ALL_SPANS: tl.constexpr,
    TILE: tl.constexpr,
    CANDIDATES: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (R). Reads the spans' maxima and masses of scan_spans, and the logits of chosen spans; writes token_ids
    [R], and last_tokens of the rows' slots. Of a row that is not finite no span is chosen, and nothing is read."""
    wait_for_previous(WAITS)
    row = tl.program_id(0).to(tl.int64)
    logits_row_ptr = logits_ptr + row * row_stride
    span_row = row * span_stride
    num_spans = tl.cdiv(vocab_size, SPAN)
    spans = tl.arange(0, ALL_SPANS)
    is_span = spans < num_spans
    maxima = tl.load(maxima_ptr + span_row + spans, mask=is_span, other=float("-inf"))
    best = tl.max(maxima, axis=0)
    is_finite = (best > float("-inf")) & (best < float("inf"))
    temperature = tl.load(temperatures_ptr + row)
    offsets = tl.arange(0, SPAN)
    if is_finite & (temperature > 0.0):
        scores = tl.div_rn(maxima - best, temperature)
        masses = tl.load(masses_ptr + span_row + spans, mask=is_span, other=0.0) * tl.exp(scores)
        total = tl.sum(masses.to(tl.float64), axis=0)
        number = _uniform(tl.load(seeds_ptr + row), tl.load(counters_ptr + row))
        top_k, top_p, min_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row), tl.load(min_p_ptr + row)
        floor = tl.full((), FLOOR, tl.float32)
        limit = floor
        if (top_k > 0) | (top_p < 1.0) | (min_p > 0.0):
            if top_k > 0:
                bound = bound_of(scores, 1.0, top_k.to(tl.float32), floor)
            else:
                bound = floor
                if top_p < 1.0:
                    # All tokens below this bound together have less mass than top-p removes.
                    bound = tl.log((1.0 - top_p) * total.to(tl.float32) / vocab_size) - 1e-3
                    needed = top_p * total.to(tl.float32) * (1.0 + 1e-5)
                    bound = tl.maximum(bound, bound_of(scores, tl.exp(scores), needed, floor))
                else:
                    bound = tl.log(min_p)
            bound = tl.maximum(bound, floor)
            num_chosen = choose_spans(scores, bound, num_spans, chosen_ptr, span_row, ALL_SPANS)
            if (top_k > 0) | (top_p < 1.0):
                scores_ptr = candidates_ptr + row * CANDIDATES
                num_candidates = _write_candidates(
                    logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
                    bound, scores_ptr, SPAN, TILE, CANDIDATES,
                )  # fmt: skip
                if num_candidates <= CANDIDATES:
                    limit = _limit_among(scores_ptr, num_candidates, top_k, top_p, total, CANDIDATES)
                else:
                    limit = _limit_of(
                        logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
                        top_k, top_p, total, SPAN, TILE,
                    )  # fmt: skip
            if min_p > 0.0:
                limit = tl.maximum(limit, tl.log(min_p))
            span, before, target = _span_of_chosen(
                logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
                limit, number, SPAN, TILE,
            )  # fmt: skip
        else:
            target = number * total
            span, before = _first_beyond(masses.to(tl.float64), target, 0.0)
            span = tl.where(span == NOWHERE, tl.max(tl.where(masses > 0.0, spans, 0), axis=0), span)
        tokens = span * SPAN + offsets
        x = tl.load(logits_row_ptr + tokens, mask=tokens < vocab_size, other=float("-inf")).to(tl.float32)
        y = tl.div_rn(x - best, temperature)
        weights = tl.where(y >= limit, tl.exp(y), 0.0).to(tl.float64)
        offset, _ = _first_beyond(weights, target, before)
        # By rounding, the span's mass may end just below the target: then its last token with any mass is sampled.
        offset = tl.where(offset == NOWHERE, tl.max(tl.where(weights > 0.0, offsets, 0), axis=0), offset)
        token = (span * SPAN + offset).to(tl.int64)
    else:
        span = tl.min(tl.where(maxima == best, spans, num_spans - 1), axis=0)
        tokens = span * SPAN + offsets
        x = tl.load(logits_row_ptr + tokens, mask=tokens < vocab_size, other=float("-inf")).to(tl.float32)
        token = tl.min(tl.where(x == best, tokens, vocab_size - 1), axis=0).to(tl.int64)
    tl.store(token_ids_ptr + row, tl.where(is_finite, token, NO_TOKEN))
    if slots_ptr is not None:
        slot = tl.load(slots_ptr + row)
        if slot >= 0:  # a step in flight reads it, where there is no token too
            tl.store(last_tokens_ptr + slot, token)


@triton.jit
def _write_candidates(
    logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
    bound, scores_ptr,
    SPAN: tl.constexpr, TILE: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Writes the scores >= bound, in the order of their tokens, as far as there is room; returns how many there are."""
    count = 0
    for first in range(0, num_chosen, TILE):
        y = chosen_scores(
            logits_row_ptr, chosen_ptr, span_row, first, num_chosen, vocab_size, best, temperature, SPAN, TILE
        )
        is_candidate = y >= bound
        marks = is_candidate.to(tl.int32)
        of_spans = tl.sum(marks, axis=1)
        starts = count + tl.cumsum(of_spans, axis=0) - of_spans
        places = starts[:, None] + tl.cumsum(marks, axis=1) - 1
        tl.store(scores_ptr + places, y, mask=is_candidate & (places < CANDIDATES))
        count += tl.sum(of_spans, axis=0)
    tl.debug_barrier()  # other threads of the program read these scores
    return count


@triton.jit
def _limit_among(scores_ptr, count, top_k, top_p, total, CANDIDATES: tl.constexpr):
    """The smallest score that top-k and top-p keep, of `count` candidates. A token is kept by top-k if fewer than top_k
    tokens have larger scores, and by top-p if these have less mass than top_p of the total (of the tokens that top-k
    keeps). total: the mass of all tokens, float64."""
    places = tl.arange(0, CANDIDATES)
    is_candidate = places < count
    y = tl.load(scores_ptr + places, mask=is_candidate, other=float("-inf"))
    num_larger = tl.zeros((CANDIDATES,), tl.int32)
    mass_larger = tl.zeros((CANDIDATES,), tl.float64)
    for first in range(0, count, 8):
        for number in tl.static_range(8):
            other = tl.load(scores_ptr + first + number, mask=first + number < count, other=float("-inf"))
            is_larger = other > y
            num_larger += is_larger.to(tl.int32)
            mass_larger += tl.where(is_larger, tl.exp(other), 0.0).to(tl.float64)
    is_kept = is_candidate
    if top_k > 0:
        is_kept = is_kept & (num_larger < top_k)
        total = tl.sum(tl.where(is_kept, tl.exp(y), 0.0).to(tl.float64), axis=0)
    if top_p < 1.0:
        is_kept = is_kept & (mass_larger < top_p.to(tl.float64) * total)
    return tl.min(tl.where(is_kept, y, 0.0), axis=0)


@triton.jit
def _limit_of(
    logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
    top_k, top_p, total,
    SPAN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The smallest score that top-k and top-p keep, for any number of candidates. total: the mass of all tokens,
    float64."""
    limit = tl.full((), FLOOR, tl.float32)
    if top_k > 0:
        limit = _smallest_kept(
            logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
            limit, top_k.to(tl.float64), True, SPAN, TILE,
        )  # fmt: skip
    if top_p < 1.0:
        if top_k > 0:
            total = tl.full((), 0.0, tl.float64)
            for first in range(0, num_chosen, TILE):
                y = chosen_scores(
                    logits_row_ptr, chosen_ptr, span_row, first, num_chosen, vocab_size, best, temperature, SPAN, TILE
                )
                total += tl.sum(_kept_masses(y, limit), axis=0)
        limit = _smallest_kept(
            logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
            limit, top_p.to(tl.float64) * total, False, SPAN, TILE,
        )  # fmt: skip
    return limit


@triton.jit
def _smallest_kept(
    logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
    limit, goal,
    BY_COUNT: tl.constexpr, SPAN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The smallest score >= limit such that the scores above it have less weight than the goal. Weight: the number of
    tokens if BY_COUNT (top-k), else their mass (top-p).

    Bisection whose bounds are always scores that occur (or the limit): each step finds the occurring scores next to the
    middle, so it ends when only one is left.
    """
    # The first tile stays in registers; with few chosen spans it is the only one.
    first_scores = chosen_scores(
        logits_row_ptr, chosen_ptr, span_row, 0, num_chosen, vocab_size, best, temperature, SPAN, TILE
    )
    top = tl.full((), 0.0, tl.float32)
    while limit < top:
        middle = limit + (top - limit) * 0.5
        middle = tl.where(middle > limit, middle, top)
        weight, above, below = _around(first_scores, middle, BY_COUNT)
        for first in range(TILE, num_chosen, TILE):
            y = chosen_scores(
                logits_row_ptr, chosen_ptr, span_row, first, num_chosen, vocab_size, best, temperature, SPAN, TILE
            )
            more, next_above, next_below = _around(y, middle, BY_COUNT)
            weight += more
            above = tl.minimum(above, next_above)
            below = tl.maximum(below, next_below)
        is_reached = weight >= goal
        limit = tl.where(is_reached, above, limit)
        top = tl.where(is_reached, top, below)
    return limit


@triton.jit
def _around(scores, middle, BY_COUNT: tl.constexpr):
    """Weight of the scores >= middle, the smallest of these scores, and the largest score below middle."""
    is_above = scores >= middle
    if BY_COUNT:
        weight = tl.sum(tl.sum(is_above.to(tl.int32), axis=1), axis=0).to(tl.float64)
    else:
        weight = tl.sum(_kept_masses(scores, middle), axis=0)
    above = tl.min(tl.min(tl.where(is_above, scores, float("inf")), axis=1), axis=0)
    below = tl.max(tl.max(tl.where(is_above, float("-inf"), scores), axis=1), axis=0)
    return weight, above, below


@triton.jit
def _kept_masses(scores, limit):
    """Mass of each span's kept tokens (score >= limit): [TILE] float64 from scores [TILE, SPAN]."""
    return tl.sum(tl.where(scores >= limit, tl.exp(scores), 0.0).to(tl.float64), axis=1)


@triton.jit
def _first_beyond(masses, target, before):
    """Index of the first mass at which `before` + the cumulative sum exceeds the target (NOWHERE if it never does), and
    `before` + the sum of the masses in front of it."""
    places = tl.arange(0, masses.shape[0])
    is_beyond = (tl.cumsum(masses, axis=0) + before > target) & (masses > 0.0)
    place = tl.min(tl.where(is_beyond, places, NOWHERE), axis=0)
    return place, before + tl.sum(tl.where(places < place, masses, 0.0), axis=0)


@triton.jit
def _span_of_chosen(
    logits_row_ptr, chosen_ptr, span_row, num_chosen, vocab_size, best, temperature,
    limit, number,
    SPAN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The chosen span in which the cumulative kept mass passes the target, the kept mass before that span, and the
    target: number * all kept mass."""
    kept = tl.full((), 0.0, tl.float64)
    last = 0
    for first in range(0, num_chosen, TILE):
        y = chosen_scores(
            logits_row_ptr, chosen_ptr, span_row, first, num_chosen, vocab_size, best, temperature, SPAN, TILE
        )
        masses = _kept_masses(y, limit)
        last = tl.maximum(last, tl.max(tl.where(masses > 0.0, first + tl.arange(0, TILE), 0), axis=0))
        kept += tl.sum(masses, axis=0)
    target = number * kept
    before = tl.full((), 0.0, tl.float64)
    found = tl.full((), NOWHERE, tl.int32)
    first = 0
    while (first < num_chosen) & (found == NOWHERE):
        y = chosen_scores(
            logits_row_ptr, chosen_ptr, span_row, first, num_chosen, vocab_size, best, temperature, SPAN, TILE
        )
        masses = _kept_masses(y, limit)
        place, before = _first_beyond(masses, target, before)
        found = tl.where(place == NOWHERE, NOWHERE, first + place)
        first += TILE
    found = tl.where(found == NOWHERE, last, found)
    return tl.load(chosen_ptr + span_row + found), before, target


@triton.jit
def _uniform(seed, counter):
    """float64 in [0, 1) with 53 random bits: Philox-4x32-10 (Salmon et al., SC'11)."""
    low, high = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    zero = tl.zeros_like(low)
    word0, word1, _, _ = tl.philox(seed, low, high, zero, zero)
    bits = (word0.to(tl.int64) << 21) | (word1.to(tl.int64) >> 11)
    return bits.to(tl.float64) * (2.0**-53)


def sample(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    counters: torch.Tensor,
    token_ids: torch.Tensor,
    workspace: SamplingWorkspace,
    slots: torch.Tensor | None = None,
    last_tokens: torch.Tensor | None = None,
) -> None:
    """Samples one token per row of logits [R, V] into token_ids [R], and into last_tokens of slots [R], as
    StepKernels.sample defines; overwrites the workspace. All tensors [R] are contiguous."""
    num_rows, vocab_size = logits.shape
    columns = (temperatures, top_k, top_p, min_p, seeds, counters, token_ids)
    assert all(column.shape == (num_rows,) and column.is_contiguous() for column in columns)
    dtypes = (torch.float32, torch.int32, torch.float32, torch.float32, torch.int64, torch.int64, torch.int64)
    assert tuple(column.dtype for column in columns) == dtypes
    assert (slots is None) == (last_tokens is None), "both, or none"
    if slots is not None and last_tokens is not None:
        assert slots.shape == (num_rows,)
        assert slots.is_contiguous()
        assert (slots.dtype, last_tokens.dtype) == (torch.int32, torch.int64)
    if not num_rows:
        return
    num_spans = scan_spans(logits, temperatures, workspace)
    _draw[(num_rows,)](
        logits,
        *columns,
        workspace.maxima,
        workspace.masses,
        workspace.chosen,
        workspace.candidates,
        slots,
        last_tokens,
        logits.stride(0),
        workspace.maxima.stride(0),
        vocab_size,
        CANDIDATES=SAMPLING_CANDIDATES,
        **launch_options(logits.device),
        **row_configuration(num_spans),
    )
