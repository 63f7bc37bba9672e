"""States of attention over disjoint tokens joined into one, in plain torch."""

import torch


def merge_states(outputs: torch.Tensor, lse: torch.Tensor, output: torch.Tensor) -> None:
    """outputs [rows, H, states, D] float32 and lse [rows, H, states] float32: result over some tokens, and log of
    their sum of exponentials; a state of lse -inf is none. Out: output [rows, H, D] over all of them; zeros where
    there is no state."""
    total = lse.logsumexp(-1)
    weights = torch.exp(lse - total.masked_fill(total == float("-inf"), 0)[..., None])[..., None]
    output.copy_((outputs.masked_fill(weights == 0, 0) * weights).sum(2))
