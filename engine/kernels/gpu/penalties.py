"""Logit biases of single tokens, and penalties of tokens that have occurred. N = tokens with a bias.

Penalties read the count of every token of the vocabulary, and the logits of those that have occurred. A list of these
tokens would have to come from the host, which does not know the newest token yet. The counts of a row are 4 bytes per
token: 0.5 MB for a vocabulary of 128k.
"""

import torch
import triton
import triton.language as tl

_BLOCK_BIASES = 256
_BLOCK_TOKENS = 2048  #: four 128-bit loads per thread


@triton.jit(do_not_specialize=["num_biases"])
def _add_biases(logits_ptr, token_ids_ptr, biases_ptr, logits_stride, num_biases, BLOCK: tl.constexpr):
    """Grid (R, blocks of N). logits [R, V] float32 in place; token_ids and biases [R, N]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    places = row * num_biases + columns
    tokens = tl.load(token_ids_ptr + places, mask=columns < num_biases, other=-1)
    is_token = tokens >= 0
    logits = logits_ptr + row * logits_stride + tokens
    values = tl.load(logits, mask=is_token, other=0.0) + tl.load(biases_ptr + places, mask=is_token, other=0.0)
    tl.store(logits, values, mask=is_token)


@triton.jit
def _penalise(
    logits_ptr,
    slots_ptr,
    counts_ptr,
    repetition_ptr,
    presence_ptr,
    frequency_ptr,
    logits_stride,
    counts_stride,
    vocab_size,
    BLOCK: tl.constexpr,
):
    """Grid (R, blocks of V). logits [R, V] float32 in place; counts [S, V] int32."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + row)
    if slot >= 0:
        tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        seen = tl.load(counts_ptr + slot * counts_stride + tokens, mask=tokens < vocab_size, other=0)
        is_seen = seen > 0
        logits = logits_ptr + row * logits_stride + tokens
        values = tl.load(logits, mask=is_seen, other=0.0)
        repetition = tl.load(repetition_ptr + row)
        values = tl.where(values > 0.0, tl.div_rn(values, repetition), values * repetition)
        in_output = seen >> 1
        values -= tl.load(frequency_ptr + row) * in_output
        values -= tl.where(in_output > 0, tl.load(presence_ptr + row), 0.0)
        tl.store(logits, values, mask=is_seen)


def add_biases(logits: torch.Tensor, token_ids: torch.Tensor, biases: torch.Tensor) -> None:
    """logits [R, V] += biases [R, N] at token_ids [R, N] (-1: padding), in place (StepKernels.add_biases)."""
    num_rows, num_biases = token_ids.shape
    assert logits.dtype == biases.dtype == torch.float32
    assert token_ids.dtype == torch.int32
    assert logits.stride(1) == 1
    assert len(logits) == num_rows
    assert biases.shape == token_ids.shape
    assert token_ids.is_contiguous()
    assert biases.is_contiguous()
    if num_rows and num_biases:
        grid = (num_rows, triton.cdiv(num_biases, _BLOCK_BIASES))
        _add_biases[grid](logits, token_ids, biases, logits.stride(0), num_biases, BLOCK=_BLOCK_BIASES, num_warps=4)


def penalise(
    logits: torch.Tensor,
    slots: torch.Tensor,
    counts: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
) -> None:
    """Repetition, frequency and presence penalties on logits [R, V] float32, in place, from counts [S, V] int32.
    Contract: StepKernels.penalise."""
    num_rows, vocab_size = logits.shape
    columns = (repetition, presence, frequency)
    assert logits.dtype == torch.float32
    assert counts.dtype == torch.int32
    assert slots.dtype == torch.int64
    assert logits.stride(1) == counts.stride(1) == 1
    assert counts.shape[1] >= vocab_size
    assert all(column.shape == (num_rows,) and column.is_contiguous() for column in (slots, *columns))
    assert all(column.dtype == torch.float32 for column in columns)
    if not num_rows:
        return
    _penalise[(num_rows, triton.cdiv(vocab_size, _BLOCK_TOKENS))](
        logits,
        slots,
        counts,
        *columns,
        logits.stride(0),
        counts.stride(0),
        vocab_size,
        BLOCK=_BLOCK_TOKENS,
        num_warps=4,
        enable_fp_fusion=False,  # penalised logits equal those of the host to the last bit
    )
