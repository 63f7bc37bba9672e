"""Gated MLPs of many experts, each on the tokens that chose it, without a decision on the host.

T = tokens, E = experts, C = experts chosen for each token, I = intermediate size.
"""

import torch
import torch.nn.functional as F

from engine.kernels.operators import PLAIN_EXPERTS, ClampedGate, ExpertOptions, TanhGelu


def grouped_experts(
    x: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    options: ExpertOptions = PLAIN_EXPERTS,
) -> torch.Tensor:
    """x [T, hidden], chosen [T, C] int32, weights [T, C] float32, gate_up [E, 2 * I, hidden], gates first, and down
    [E, hidden, I] -> [T, hidden]: down(silu(gate(x)) * up(x)) of each chosen expert, times its weight, added in order.
    Biases are added to both products; another gate of the options takes the place of silu(gate) * up.

    All sums are in float32. They are rounded as silu(gate) * up, as the output of an expert, and as that of a token.
    """
    total = torch.zeros_like(x, dtype=torch.float32)
    for place in range(chosen.shape[1]):
        experts = chosen[:, place].long()
        wide = torch.einsum("toh,th->to", gate_up[experts].float(), x.float())
        if options.gate_up_bias is not None:
            wide += options.gate_up_bias[experts]
        gate, up = wide.chunk(2, dim=-1)
        activated = _activated(gate, up, options.gate).to(x.dtype)
        outputs = torch.einsum("thi,ti->th", down[experts].float(), activated.float())
        if options.down_bias is not None:
            outputs += options.down_bias[experts]
        total += outputs.to(x.dtype).float() * weights[:, place, None]
    return total.to(x.dtype)


def _activated(gate: torch.Tensor, up: torch.Tensor, kind: ClampedGate | TanhGelu | None) -> torch.Tensor:
    if kind is None:
        return F.silu(gate) * up
    if isinstance(kind, TanhGelu):
        return F.gelu(gate, approximate="tanh") * up
    gate, up = gate.clamp(max=kind.limit), up.clamp(-kind.limit, kind.limit)
    return gate * torch.sigmoid(kind.alpha * gate) * (up + 1.0)
