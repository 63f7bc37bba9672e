"""Masks of tokens on logits, in plain torch, without waiting for the device."""

import torch


def mask_tokens(logits: torch.Tensor, mask_rows: torch.Tensor, words: torch.Tensor) -> None:
    """logits [R, V] float32 of tokens whose bit in words [N, W] int32 is 0 become -inf, in place, for rows with a mask
    (StepKernels.mask_tokens)."""
    bits = words[mask_rows.clamp(min=0), :, None] >> torch.arange(32, dtype=torch.int32, device=words.device)
    is_forbidden = (bits.view(len(logits), -1)[:, : logits.shape[1]] & 1) == 0
    logits.masked_fill_(is_forbidden & (mask_rows >= 0)[:, None], float("-inf"))
