"""Merging attention states over disjoint tokens into one result, in plain torch."""

import torch


def merge_states(outputs: torch.Tensor, lse: torch.Tensor, counts: torch.Tensor, output: torch.Tensor) -> None:
    """Writes the attention output over all tokens from partial outputs (Dao et al., Flash-Decoding, 2023).

    In: outputs [rows, H, states, D] float32, the attention output over some tokens; lse [rows, H, states] float32, the
    log of the sum of their exponentials; counts [rows] int32: a row has its first counts[row] states, and others hold
    anything. A state with lse -inf is empty. Out: output [rows, H, D]; zeros if all states of a row are empty.
    """
    is_state = torch.arange(lse.shape[2], device=lse.device) < counts[:, None, None]
    lse = lse.masked_fill(~is_state, float("-inf"))
    total = lse.logsumexp(-1)
    weights = torch.exp(lse - total.masked_fill(total == float("-inf"), 0)[..., None])[..., None]
    output.copy_((outputs.masked_fill(weights == 0, 0) * weights).sum(2))
