"""Gated MLPs of many experts, each on the tokens that chose it, without a decision on the host.

T = tokens, E = experts, C = experts chosen for each token, I = intermediate size.
"""

import torch
import torch.nn.functional as F


def grouped_experts(
    x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """x [T, hidden], chosen [T, C] int32, weights [T, C] float32, gate_up [E, 2 * I, hidden], gates first, and down
    [E, hidden, I] -> [T, hidden]: down(silu(gate(x)) * up(x)) of each chosen expert, times its weight, added in order.

    All sums are in float32. They are rounded as silu(gate) * up, as the output of an expert, and as that of a token.
    """
    total = torch.zeros_like(x, dtype=torch.float32)
    for place in range(chosen.shape[1]):
        experts = chosen[:, place].long()
        gate, up = torch.einsum("toh,th->to", gate_up[experts].float(), x.float()).chunk(2, dim=-1)
        activated = (F.silu(gate) * up).to(x.dtype)
        outputs = torch.einsum("thi,ti->th", down[experts].float(), activated.float()).to(x.dtype)
        total += outputs.float() * weights[:, place, None]
    return total.to(x.dtype)
