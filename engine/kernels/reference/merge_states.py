"""Merges partial results (states) of attention over disjoint tokens, in plain torch."""

import torch


def merge_states(outputs: torch.Tensor, lse: torch.Tensor, output: torch.Tensor) -> None:
    """outputs [rows, H, states, D] float32 and lse [rows, H, states] float32: outputs over some tokens,
    and log of their sum of exponentials; a state with lse -inf is empty. Out: output [rows, H, D] over all of them;
    zeros if all states are empty."""
    total = lse.logsumexp(-1)
    weights = torch.exp(lse - total.masked_fill(total == float("-inf"), 0)[..., None])[..., None]
    output.copy_((outputs.masked_fill(weights == 0, 0) * weights).sum(2))
