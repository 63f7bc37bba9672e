"""RMS norm of groups of channels, with a gate before or behind it: the end of recurrent layers.

T = tokens of the step, I = channels.
"""

import torch
import torch.nn.functional as F


def gated_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float, num_groups: int, *, is_gated_first: bool
) -> torch.Tensor:
    """x, gate [T, I] -> [T, I], newly allocated. Contract: StateKernels.gated_norm."""
    gates = F.silu(gate.float())
    rows = x.float() * gates if is_gated_first else x.float()
    groups = rows.view(len(rows), num_groups, -1)
    normed = F.rms_norm(groups, groups.shape[2:], None, eps).view_as(rows) * weight
    return (normed if is_gated_first else normed.mul_(gates)).to(x.dtype)
