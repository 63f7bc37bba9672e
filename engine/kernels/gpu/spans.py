"""Maxima and masses of spans of 64 logits: the first half of sampling and of log probabilities.

A row of 128k logits is read once, by many programs. The second half is one program per row; it reads 2,000 maxima and
masses, chooses the few spans that can matter, and reads their logits. R = rows, V = vocabulary. A score is
(logit - largest logit of the row) / temperature.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.step_kernels import SAMPLING_SPAN, SamplingWorkspace

SPAN = SAMPLING_SPAN
#: Spans per program of scan_spans: 4,096 logits, 32 for each thread of four warps.
_SPANS_OF_PROGRAM = 64
#: Spans that the second half reads together, and warps of its program: with 8, ptxas spills registers to run two
#: programs on a multiprocessor.
SPANS_OF_TILE = 64
NUM_WARPS = 16


@triton.jit
def _scan_spans(
    logits_ptr,
    temperatures_ptr,
    maxima_ptr,
    masses_ptr,
    row_stride,
    span_stride,
    vocab_size,
    SPAN: tl.constexpr,
    SPANS: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (R, blocks of spans). Writes each span's largest logit, +inf where one is NaN, and, relative to it, its sum
    of exponentials (not for greedy rows, whose temperature is 0)."""
    wait_for_previous(WAITS)
    row = tl.program_id(0).to(tl.int64)
    spans = tl.program_id(1) * SPANS + tl.arange(0, SPANS)
    tokens = spans[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    x = tl.load(logits_ptr + row * row_stride + tokens, mask=tokens < vocab_size, other=float("-inf")).to(tl.float32)
    x = tl.where(x == x, x, float("inf"))  # a maximum passes over NaN
    largest = tl.max(x, axis=1)
    places = row * span_stride + spans
    is_span = spans * SPAN < vocab_size
    tl.store(maxima_ptr + places, largest, mask=is_span)
    temperature = 1.0
    if temperatures_ptr is not None:
        temperature = tl.load(temperatures_ptr + row)
    if temperature > 0.0:
        base = tl.where(largest == float("-inf"), 0.0, largest)
        masses = tl.sum(tl.exp(tl.div_rn(x - base[:, None], temperature)), axis=1)
        tl.store(masses_ptr + places, masses, mask=is_span)


@triton.jit
def bound_of(scores, weights, goal, lowest):
    """A score >= lowest such that the spans with a largest score >= it have a total weight >= goal; lowest if there is
    none. scores [ALL_SPANS]: each span's largest score.

    Each span's largest logit is one of the row's logits. So at least as many tokens, with at least that mass, are at or
    above the bound. 16 steps of bisection.
    """
    high = tl.full((), 0.0, tl.float32)
    for _ in range(16):
        middle = lowest + (high - lowest) * 0.5
        reaches = tl.sum(tl.where(scores >= middle, weights, 0.0), axis=0) >= goal
        lowest = tl.where(reaches, middle, lowest)
        high = tl.where(reaches, high, middle)
    return lowest


@triton.jit
def choose_spans(scores, bound, num_spans, chosen_ptr, span_row, ALL_SPANS: tl.constexpr):
    """Writes the numbers of the spans with a largest score >= bound to chosen, in order; returns their count."""
    spans = tl.arange(0, ALL_SPANS)
    is_chosen = (scores >= bound) & (spans < num_spans)
    counts = is_chosen.to(tl.int32)
    tl.store(chosen_ptr + span_row + tl.cumsum(counts, axis=0) - 1, spans, mask=is_chosen)
    tl.debug_barrier()  # other threads of the program read these numbers
    return tl.sum(counts, axis=0)


@triton.jit
def chosen_tokens(chosen_ptr, span_row, first, num_chosen, vocab_size, SPAN: tl.constexpr, TILE: tl.constexpr):
    """Token ids [TILE, SPAN] of TILE chosen spans from number `first` on, and a mask of those that exist."""
    places = first + tl.arange(0, TILE)
    spans = tl.load(chosen_ptr + span_row + places, mask=places < num_chosen, other=0)
    tokens = spans[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    return tokens, (places < num_chosen)[:, None] & (tokens < vocab_size)


@triton.jit
def chosen_scores(
    logits_row_ptr, chosen_ptr, span_row, first, num_chosen, vocab_size, best, temperature,
    SPAN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Scores [TILE, SPAN] of the tokens of chosen spans; -inf where there is no token."""
    tokens, is_token = chosen_tokens(chosen_ptr, span_row, first, num_chosen, vocab_size, SPAN, TILE)
    x = tl.load(logits_row_ptr + tokens, mask=is_token, other=float("-inf")).to(tl.float32)
    return tl.div_rn(x - best, temperature)


def scan_spans(logits: torch.Tensor, temperatures: torch.Tensor | None, workspace: SamplingWorkspace) -> int:
    """Fills maxima and masses of the workspace for logits [R, V]; temperatures [R] float32, None: 1. Returns the number
    of spans."""
    num_rows, vocab_size = logits.shape
    num_spans = -(-vocab_size // SPAN)
    assert logits.stride(1) == 1
    assert workspace.maxima.shape[0] >= num_rows
    assert workspace.maxima.shape[1] >= num_spans
    assert all(t.is_contiguous() for t in (workspace.maxima, workspace.masses, workspace.chosen))
    _scan_spans[(num_rows, triton.cdiv(num_spans, _SPANS_OF_PROGRAM))](
        logits,
        temperatures,
        workspace.maxima,
        workspace.masses,
        logits.stride(0),
        workspace.maxima.stride(0),
        vocab_size,
        SPAN=SPAN,
        SPANS=_SPANS_OF_PROGRAM,
        num_warps=4,
        **launch_options(logits.device),
    )
    return num_spans


def row_configuration(num_spans: int) -> dict[str, int]:
    """Constants and warps of a kernel with one program per row that reads the maxima and masses of all spans."""
    all_spans = triton.next_power_of_2(num_spans)
    return {"SPAN": SPAN, "ALL_SPANS": all_spans, "TILE": min(SPANS_OF_TILE, all_spans), "num_warps": NUM_WARPS}
