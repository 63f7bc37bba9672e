"""Mixture of experts: each token goes through the few gated MLPs that a router gives the highest probability."""

from collections.abc import Sequence

import torch

from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP


class Experts:
    def __init__(self, router: Linear, experts: Sequence[GatedMLP], *, num_chosen: int, sums_to_one: bool) -> None:
        """router gives a score for each expert. sums_to_one: the chosen experts' weights are scaled to sum to one."""
        self._router = router
        self._experts = experts
        self._num_chosen = num_chosen
        self._sums_to_one = sums_to_one

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self._experts[0].completed(self.partial(x))

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This process's part of the output. Every expert that somebody has chosen runs once, on all its tokens."""
        probabilities = self._router(x).softmax(dim=-1, dtype=torch.float32)
        weights, chosen = probabilities.topk(self._num_chosen, dim=-1)  # [T, chosen]
        if self._sums_to_one:
            weights /= weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        output = torch.zeros_like(x)
        for expert in sorted(set(chosen.flatten().tolist())):
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            output.index_add_(0, rows, self._experts[expert].partial(x[rows]) * weights[rows, places, None])
        return output


class WithSharedExpert:
    """Experts, and beside them one that every token goes through, weighted by the sigmoid of a score of its own."""

    def __init__(self, experts: Experts, shared: GatedMLP, gate: Linear) -> None:
        self._experts = experts
        self._shared = shared
        self._gate = gate

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        partial = self._experts.partial(x) + self._gate(x).sigmoid() * self._shared.partial(x)
        return self._shared.completed(partial)
