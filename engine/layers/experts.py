"""Mixture of experts: each token goes through the few gated MLPs to which a router gives the highest probability.

Where the operators have a grouped product, the experts' weights lie one after another, the device chooses, and a step
of any number of tokens can be a CUDA graph. Without one the host chooses, and each chosen expert runs on its own
tokens, which is free on CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from engine.errors import CheckpointError
from engine.kernels.operators import ExpertsFunction, Routing
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.weights import WeightSource
from engine.parallel.group import Group
from engine.parallel.shard import Shard, Size


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """The names of an expert's matrices in the checkpoint, without ".weight"."""

    gate: str
    up: str
    down: str

    @classmethod
    def projections(cls, name: str) -> Self:
        """Those of an MLP of that name as Llama calls them."""
        return cls(f"{name}.gate_proj", f"{name}.up_proj", f"{name}.down_proj")


class Experts:
    """A router and its experts; the output is the weighted sum of the chosen ones."""

    def __init__(self, router: Linear, mixture: ExpertsFunction, *, waits: bool, summed_over: Group | None) -> None:
        """router gives a score for each expert. waits: the mixture reads numbers on the host. summed_over: the
        processes that hold the other parts of every expert."""
        self.is_capturable = not waits
        self._router = router
        self._mixture = mixture
        self._group = summed_over

    @classmethod
    def load(
        cls,
        weights: WeightSource,
        router: Linear,
        names: Sequence[ExpertNames],
        hidden: int,
        ffn: Size,
        routing: Routing,
    ) -> Self:
        """Takes the experts' matrices: gate and up [ffn, hidden], down [hidden, ffn]. Raises CheckpointError where more
        experts are to be chosen than there are."""
        if routing.num_chosen > len(names):
            raise CheckpointError(f"config.json: {routing.num_chosen} of {len(names)} experts cannot be chosen")
        group = weights.group if isinstance(ffn, Shard) and not ffn.is_whole else None
        grouped = weights.operators.grouped_experts
        if grouped is None:
            mlps = [load_expert(weights, expert, hidden, ffn) for expert in names]
            return cls(router, chosen_by_host(mlps, routing), waits=True, summed_over=group)
        return cls(router, grouped(*_stacked(weights, names, hidden, ffn), routing), waits=False, summed_over=group)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        partial = self.partial(x)
        return partial if self._group is None else self._group.sum(partial)

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This process's part of the output, [T, hidden]: a sum over the processes completes it."""
        return self._mixture(x, self._router(x))


class WithSharedExpert:
    """Experts, and a shared expert for every token, weighted by the sigmoid of a score (Qwen2-MoE)."""

    def __init__(self, experts: Experts, shared: GatedMLP, gate: Linear) -> None:
        self.is_capturable = experts.is_capturable
        self._experts = experts
        self._shared = shared
        self._gate = gate

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        partial = self._experts.partial(x) + self._gate(x).sigmoid() * self._shared.partial(x)
        return self._shared.completed(partial)


def chosen_by_host(
    experts: Sequence[GatedMLP], routing: Routing, factors: torch.Tensor | None = None
) -> ExpertsFunction:
    """The mixture in which each expert has products of its own: the host reads which ones some token chooses. factors
    [experts] float32: on the experts' weights."""

    def mix(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        probabilities = scores.softmax(dim=-1, dtype=torch.float32)
        weights, chosen = probabilities.topk(routing.num_chosen, dim=-1)  # [T, chosen]
        if routing.sums_to_one:
            weights /= weights.sum(dim=-1, keepdim=True)
        if factors is not None:
            weights = weights * factors[chosen]
        weights = weights.to(x.dtype)
        output = torch.zeros_like(x)
        for index in sorted(set(chosen.flatten().tolist())):
            rows, places = (chosen == index).nonzero(as_tuple=True)
            output.index_add_(0, rows, experts[index].partial(x[rows]) * weights[rows, places, None])
        return output

    return mix


def load_expert(weights: WeightSource, names: ExpertNames, hidden: int, ffn: Size) -> GatedMLP:
    """An expert by itself: gate and up [ffn, hidden], down [hidden, ffn]."""
    gate_up = Linear.fused(weights, [names.gate, names.up], hidden, [ffn, ffn], bias=False)
    return GatedMLP(gate_up, Linear.load(weights, names.down, ffn, hidden, bias=False), weights.operators.silu_mul)


def _stacked(
    weights: WeightSource, names: Sequence[ExpertNames], hidden: int, ffn: Size
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gates and ups [experts, 2 * ffn, hidden] and downs [experts, hidden, ffn]; meanwhile at most two experts are held
    beside them."""
    missing = [expert.down for expert in names if f"{expert.down}.weight" not in weights]
    if missing:  # before memory is allocated for as many experts as the config says
        raise CheckpointError(f"the checkpoint has no tensor {missing[0]}.weight")
    gate_ups: torch.Tensor | None = None
    downs: torch.Tensor | None = None
    for index, expert in enumerate(names):
        gate, up = (weights.take_matrix(f"{name}.weight", ffn, hidden) for name in (expert.gate, expert.up))
        down = weights.take_matrix(f"{expert.down}.weight", hidden, ffn)
        if gate_ups is None or downs is None:
            gate_ups = gate.new_empty((len(names), 2 * len(gate), hidden))
            downs = down.new_empty((len(names), *down.shape))
        torch.cat((gate, up), out=gate_ups[index])
        downs[index].copy_(down)
    assert gate_ups is not None
    assert downs is not None
    return gate_ups, downs
