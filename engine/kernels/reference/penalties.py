"""Logit biases of single tokens, and penalties of tokens that have occurred, in plain torch. Shapes are fixed, so no
call waits for the device."""

import torch


def add_biases(logits: torch.Tensor, token_ids: torch.Tensor, biases: torch.Tensor) -> None:
    """logits [R, V] += biases [R, N] at token_ids [R, N] (-1: padding), in place (StepKernels.add_biases)."""
    added = biases.masked_fill(token_ids < 0, 0.0)
    logits.scatter_add_(1, token_ids.clamp(min=0).long(), added)


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
    seen = counts[slots.clamp(min=0)].masked_fill((slots < 0)[:, None], 0)
    repeated = torch.where(logits > 0, logits / repetition[:, None], logits * repetition[:, None])
    in_output = seen >> 1
    values = torch.where(seen > 0, repeated, logits) - frequency[:, None] * in_output
    logits.copy_(values - presence[:, None] * (in_output > 0))
