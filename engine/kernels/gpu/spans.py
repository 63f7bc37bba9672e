"""Maxima and masses of spans of 64 logits: the first half of sampling and of log probabilities.

Many programs read a row of 128k logits once. Then one program per row reads 2,000 maxima and masses, and after that
only the few spans that matter. R = rows, V = vocabulary. A score is (logit - largest) / temperature.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.compilation import Compilation, Expectation
from engine.kernels.step_kernels import SAMPLING_SPAN, SamplingWorkspace

SPAN = SAMPLING_SPAN
#: Spans per program of the first pass: 4,096 logits, 32 per thread of four warps.
_SPANS_OF_PROGRAM = 64
#: Spans that a row's program reads at once, and its warps.
SPANS_OF_TILE = 64
NUM_WARPS = 8


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
):
    row = tl.program_id(0).to(tl.int64)
    spans = tl.program_id(1) * SPANS + tl.arange(0, SPANS)
    tokens = spans[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    x = tl.load(logits_ptr + row * row_stride + tokens, mask=tokens < vocab_size, other=float("-inf")).to(tl.float32)
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
    """The largest score, `lowest` or above, at which the weights of spans from it on reach the goal; else `lowest`.

    Each span holds at least its maximum. So at least that many tokens, with at least that mass, lie above the score.
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
    """Write the spans whose maximum is not below the bound to chosen_ptr, in order; returns their number."""
    spans = tl.arange(0, ALL_SPANS)
    is_chosen = (scores >= bound) & (spans < num_spans)
    counts = is_chosen.to(tl.int32)
    tl.store(chosen_ptr + span_row + tl.cumsum(counts, axis=0) - 1, spans, mask=is_chosen)
    tl.debug_barrier()  # other threads of the program read them
    return tl.sum(counts, axis=0)


@triton.jit
def chosen_tokens(chosen_ptr, span_row, first, num_chosen, vocab_size, SPAN: tl.constexpr, TILE: tl.constexpr):
    """Token ids [TILE, SPAN] of chosen spans from `first` on, and which of them are valid."""
    places = first + tl.arange(0, TILE)
    spans = tl.load(chosen_ptr + span_row + places, mask=places < num_chosen, other=0)
    tokens = spans[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    return tokens, (places < num_chosen)[:, None] & (tokens < vocab_size)


@triton.jit
def chosen_scores(
    logits_row_ptr, chosen_ptr, span_row, first, num_chosen, vocab_size, best, temperature,
    SPAN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Scores [TILE, SPAN] of the tokens of chosen spans; -inf: no token."""
    tokens, is_token = chosen_tokens(chosen_ptr, span_row, first, num_chosen, vocab_size, SPAN, TILE)
    x = tl.load(logits_row_ptr + tokens, mask=is_token, other=float("-inf")).to(tl.float32)
    return tl.div_rn(x - best, temperature)


def scan_spans(logits: torch.Tensor, temperatures: torch.Tensor | None, workspace: SamplingWorkspace) -> int:
    """Fill the workspace's maxima and masses. temperatures [R]; None: all 1. Returns the number of spans."""
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
    )
    return num_spans


def row_configuration(num_spans: int) -> dict[str, int]:
    """Constants and warps of a kernel with one program per row, which reads the maxima and masses of all spans."""
    all_spans = triton.next_power_of_2(num_spans)
    return {"SPAN": SPAN, "ALL_SPANS": all_spans, "TILE": min(SPANS_OF_TILE, all_spans), "num_warps": NUM_WARPS}


def shipped() -> list[Compilation]:
    """Logits in bfloat16 and float32; for log probabilities without temperatures."""
    return [
        Compilation(
            name=f"scan_spans, {dtype}{'' if has_temperatures else ', temperature 1'}",
            kernel=_scan_spans,
            signature={
                "logits_ptr": f"*{dtype}",
                "temperatures_ptr": "*fp32",
                "maxima_ptr": "*fp32",
                "masses_ptr": "*fp32",
                "row_stride": "i32",
                "span_stride": "i32",
                "vocab_size": "i32",
            },
            constants={"SPAN": SPAN, "SPANS": _SPANS_OF_PROGRAM}
            | ({} if has_temperatures else {"temperatures_ptr": None}),
            divisible_by_16=frozenset(
                {"logits_ptr", "temperatures_ptr", "maxima_ptr", "masses_ptr", "row_stride", "vocab_size"}
            ),
            num_warps=4,
            num_stages=3,
            expectation=Expectation(max_registers=96),
        )
        for dtype, has_temperatures in (("bf16", True), ("fp32", True), ("fp32", False))
    ]
