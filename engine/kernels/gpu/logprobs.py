"""Log probabilities of the sampled token and of the k likeliest tokens of each row, without a sort.

The likeliest tokens are selected one after another from the spans that can hold any of them: the k spans with the
largest maxima, so about k of 2,000. R = rows, V = vocabulary.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.spans import (
    bound_of,
    choose_spans,
    chosen_tokens,
    row_configuration,
    scan_spans,
)
from engine.kernels.step_kernels import SamplingWorkspace

_NOWHERE = tl.constexpr(2**30)


@triton.jit(do_not_specialize=["k"])
def _logprobs(
    logits_ptr,
    token_ids_ptr,
    output_ptr,
    top_ids_ptr,
    top_ptr,
    maxima_ptr,
    masses_ptr,
    chosen_ptr,
    row_stride,
    span_stride,
    vocab_size,
    k,
    SPAN: tl.constexpr,
    ALL_SPANS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid (R). Reads the spans' maxima and masses of scan_spans (temperature 1); writes output [R], top_ids [R, k] and
    top [R, k]."""
    row = tl.program_id(0).to(tl.int64)
    logits_row_ptr = logits_ptr + row * row_stride
    span_row = row * span_stride
    num_spans = tl.cdiv(vocab_size, SPAN)
    spans = tl.arange(0, ALL_SPANS)
    is_span = spans < num_spans
    maxima = tl.load(maxima_ptr + span_row + spans, mask=is_span, other=float("-inf"))
    best = tl.max(maxima, axis=0)
    is_finite = (best > float("-inf")) & (best < float("inf"))
    scores = tl.where(is_finite, maxima - best, 0.0)
    masses = tl.load(masses_ptr + span_row + spans, mask=is_span, other=0.0) * tl.exp(scores)
    whole = best + tl.log(tl.sum(masses.to(tl.float64), axis=0).to(tl.float32))
    whole = tl.where(is_finite, whole, float("nan"))
    token_id = tl.maximum(tl.load(token_ids_ptr + row), 0)  # NO_TOKEN: the result is NaN for any token
    drawn = tl.load(logits_row_ptr + token_id).to(tl.float32)
    tl.store(output_ptr + row, drawn - whole)
    if k > 0:
        lowest = tl.min(tl.where(scores == float("-inf"), 0.0, scores), axis=0)
        bound = bound_of(scores, 1.0, k.to(tl.float32), lowest)
        # If fewer than k spans hold a possible token, all spans are chosen.
        is_enough = tl.sum((scores >= bound).to(tl.int32), axis=0) >= k
        bound = tl.where(is_enough, bound, float("-inf"))
        num_chosen = choose_spans(scores, bound, num_spans, chosen_ptr, span_row, ALL_SPANS)
        value = tl.full((), float("inf"), tl.float32)
        token = tl.full((), -1, tl.int32)
        for rank in range(0, k):
            next_value = tl.full((), float("-inf"), tl.float32)
            next_token = tl.full((), _NOWHERE, tl.int32)
            for first in range(0, num_chosen, TILE):
                tokens, is_token = chosen_tokens(chosen_ptr, span_row, first, num_chosen, vocab_size, SPAN, TILE)
                x = tl.load(logits_row_ptr + tokens, mask=is_token, other=float("-inf")).to(tl.float32)
                is_left = is_token & ((x < value) | ((x == value) & (tokens > token)))
                largest = tl.max(tl.max(tl.where(is_left, x, float("-inf")), axis=1), axis=0)
                is_largest = is_left & (x == largest)
                found = tl.min(tl.min(tl.where(is_largest, tokens, _NOWHERE), axis=1), axis=0)
                is_better = (largest > next_value) | ((largest == next_value) & (found < next_token))
                next_value = tl.where(is_better, largest, next_value)
                next_token = tl.where(is_better, found, next_token)
            value, token = next_value, next_token
            tl.store(top_ids_ptr + row * k + rank, token.to(tl.int64))
            tl.store(top_ptr + row * k + rank, value - whole)


def top_logprobs(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    chosen: torch.Tensor,
    top_ids: torch.Tensor,
    top: torch.Tensor,
    workspace: SamplingWorkspace,
) -> None:
    """Fills chosen, top_ids and top, as StepKernels.top_logprobs defines; overwrites the workspace. The tensors [R] and
    [R, k] are contiguous."""
    num_rows, vocab_size = logits.shape
    k = top.shape[1]
    assert k <= vocab_size
    assert token_ids.shape == chosen.shape == (num_rows,)
    assert top_ids.shape == top.shape == (num_rows, k)
    outputs = (token_ids, chosen, top_ids, top)
    assert all(tensor.is_contiguous() for tensor in outputs)
    assert tuple(t.dtype for t in outputs) == (torch.int64, torch.float32, torch.int64, torch.float32)
    if not num_rows:
        return
    num_spans = scan_spans(logits, None, workspace)
    _logprobs[(num_rows,)](
        logits,
        *outputs,
        workspace.maxima,
        workspace.masses,
        workspace.chosen,
        logits.stride(0),
        workspace.maxima.stride(0),
        vocab_size,
        k,
        **row_configuration(num_spans),
    )
