"""The choice of experts: the most probable ones of each token, and the choices of all tokens in the order of experts.

T = tokens, E = experts, C = experts chosen for each token.
"""

import torch

from engine.kernels.operators import Routing


def choose_experts(scores: torch.Tensor, routing: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    """scores [T, E] -> chosen [T, C] int32, the most probable first, and weights [T, C] float32. Of equal scores the
    first expert is chosen. A row with NaN has weights of NaN, and C different experts."""
    scores = scores.float()
    ranks = torch.where(scores > -3e38, scores, -3e38)
    chosen = ranks.sort(dim=-1, descending=True, stable=True).indices[:, : routing.num_chosen]
    weights = scores.softmax(dim=-1).gather(1, chosen)
    if routing.sums_to_one:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return chosen.to(torch.int32), weights


def order_by_expert(chosen: torch.Tensor, num_experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """chosen [T, C] int32 -> order [T * C] int32, the indices of the flattened choices by expert and then ascending,
    and starts [E] int32, where those of each expert begin."""
    chosen = chosen.flatten()
    experts = torch.arange(num_experts, dtype=chosen.dtype, device=chosen.device)
    starts = (chosen[None, :] < experts[:, None]).sum(dim=1)
    return chosen.sort(stable=True).indices.to(torch.int32), starts.to(torch.int32)
