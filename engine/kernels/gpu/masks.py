"""Masks of tokens on logits: one bit per token of the vocabulary. A row of 128k tokens has 16 kB of bits."""

import torch
import triton
import triton.language as tl

_BLOCK = 2048  #: four 128-bit loads of logits per thread


@triton.jit
def _mask_tokens(
    logits_ptr, mask_rows_ptr, words_ptr, logits_stride, words_stride, vocab_size, BLOCK: tl.constexpr
):  # fmt: skip
    """Grid (R, blocks of V). logits [R, V] float32 in place; words [N, W] int32."""
    row = tl.program_id(0).to(tl.int64)
    mask_row = tl.load(mask_rows_ptr + row)
    if mask_row >= 0:
        tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        is_token = tokens < vocab_size
        words = tl.load(words_ptr + mask_row * words_stride + tokens // 32, mask=is_token, other=-1)
        is_forbidden = ((words >> (tokens % 32)) & 1) == 0
        forbidden = tl.full((BLOCK,), float("-inf"), tl.float32)
        tl.store(logits_ptr + row * logits_stride + tokens, forbidden, mask=is_token & is_forbidden)


def mask_tokens(logits: torch.Tensor, mask_rows: torch.Tensor, words: torch.Tensor) -> None:
    """logits [R, V] float32 of tokens whose bit in words [N, W] int32 is 0 become -inf, in place, for rows with a mask.
    Contract: StepKernels.mask_tokens."""
    num_rows, vocab_size = logits.shape
    assert logits.dtype == torch.float32
    assert mask_rows.dtype == torch.int64
    assert words.dtype == torch.int32
    assert logits.stride(1) == words.stride(1) == 1
    assert mask_rows.shape == (num_rows,)
    assert mask_rows.is_contiguous()
    assert words.shape[1] * 32 >= vocab_size
    if num_rows and len(words):
        grid = (num_rows, triton.cdiv(vocab_size, _BLOCK))
        strides = (logits.stride(0), words.stride(0))
        _mask_tokens[grid](logits, mask_rows, words, *strides, vocab_size, BLOCK=_BLOCK, num_warps=4)
