"""The choice of experts: the most probable ones of each token, and the choices of all tokens in the order of experts.

T = tokens, E = experts, C = experts chosen for each token.
"""

import torch

from engine.kernels.operators import ExpertGroups, Routing

#: Rank of an expert with a score of NaN: finite, and so are sums of two.
_LEAST_RANK = -1e38
_MIN_SUM = 1e-20  #: added to a sum of weights: sigmoids of very low scores are all zero


def choose_experts(scores: torch.Tensor, routing: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    """scores [T, E] -> chosen [T, C] int32, the most probable first, and weights [T, C] float32. Of equal ranks the
    first expert is chosen. C different experts are chosen for a row with NaN, too; a softmax makes its weights NaN."""
    scores = scores.float()
    probabilities = scores.sigmoid() if routing.is_sigmoid else scores.softmax(dim=-1)
    ranks = scores  # equal probabilities may have different scores
    if routing.correction is not None:
        ranks = probabilities + routing.correction
    elif routing.groups is not None:
        ranks = probabilities
    ranks = torch.where(ranks > _LEAST_RANK, ranks, _LEAST_RANK)
    if routing.groups is not None:
        ranks = _in_best_groups(ranks, routing.groups)
    chosen = ranks.sort(dim=-1, descending=True, stable=True).indices[:, : routing.num_chosen]
    weights = probabilities.gather(1, chosen)
    if routing.sums_to_one:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + _MIN_SUM)
    return chosen.to(torch.int32), weights * routing.scale


def _in_best_groups(ranks: torch.Tensor, groups: ExpertGroups) -> torch.Tensor:
    """Ranks [T, E], minus infinity for experts of other groups than the best."""
    by_group = ranks.unflatten(1, (groups.count, -1))
    sums = by_group.topk(groups.num_summed, dim=-1).values.sum(dim=-1)  # [T, groups]
    best = sums.sort(dim=-1, descending=True, stable=True).indices[:, : groups.num_chosen]
    is_best = torch.zeros_like(sums, dtype=torch.bool).scatter_(1, best, True)
    return torch.where(is_best[:, :, None], by_group, float("-inf")).flatten(1)


def order_by_expert(chosen: torch.Tensor, num_experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """chosen [T, C] int32 -> order [T * C] int32, the indices of the flattened choices by expert and then ascending,
    and starts [E] int32, where those of each expert begin."""
    chosen = chosen.flatten()
    experts = torch.arange(num_experts, dtype=chosen.dtype, device=chosen.device)
    starts = (chosen[None, :] < experts[:, None]).sum(dim=1)
    return chosen.sort(stable=True).indices.to(torch.int32), starts.to(torch.int32)
