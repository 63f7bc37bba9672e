"""RMS norm of groups of channels, with a gate before or behind it: the end of a Mamba-2 layer.

T = tokens of the step, I = channels, G = groups.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True, slots=True)
class GatedNorm:
    """weight * norm(x silu(gate)), or weight * norm(x) silu(gate). Computed in float32."""

    weight: torch.Tensor  #: [I] float32
    eps: float
    num_groups: int  #: G: each has a root mean square of its own
    is_gated_first: bool

    def __call__(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """x, gate [T, I] -> [T, I] in the dtype of x."""
        gates = F.silu(gate.float())
        rows = x.float()
        if self.is_gated_first:
            rows = rows * gates
        groups = rows.view(len(rows), self.num_groups, -1)
        normed = F.rms_norm(groups, groups.shape[2:], None, self.eps).view_as(rows) * self.weight
        return (normed if self.is_gated_first else normed.mul_(gates)).to(x.dtype)
