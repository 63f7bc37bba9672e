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
from engine.kernels.operators import ExpertsFunction, Operators, Routing
from engine.kernels.reference import choose_experts
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
        experts are to be chosen than there are, or in groups that there are not."""
        _check_choice(routing, len(names))
        group = _summed_over(weights, ffn)
        grouped = weights.operators.grouped_experts
        if grouped is None:
            mlps = [load_expert(weights, expert, hidden, ffn) for expert in names]
            return cls(router, chosen_by_host(mlps, routing), waits=True, summed_over=group)
        return cls(router, grouped(*_stacked(weights, names, hidden, ffn), routing), waits=False, summed_over=group)

    @classmethod
    def load_joined(
        cls,
        weights: WeightSource,
        router: Linear,
        name: str,
        num_experts: int,
        hidden: int,
        ffn: Shard,
        routing: Routing,
    ) -> Self:
        """As load, of a checkpoint with one tensor for all experts: `name`.gate_up_proj [experts, 2 * ffn, hidden],
        gates first, and `name`.down_proj [experts, hidden, ffn]."""
        gate_up = weights.take_matrix(f"{name}.gate_up_proj", num_experts, Shard.stacked([ffn, ffn]), hidden)
        down = weights.take_matrix(f"{name}.down_proj", num_experts, hidden, ffn)
        group = _summed_over(weights, ffn)
        return cls.bind(weights.operators, router, gate_up, down, routing, summed_over=group)

    @classmethod
    def bind(
        cls,
        operators: Operators,
        router: Linear,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        routing: Routing,
        *,
        summed_over: Group | None = None,
    ) -> Self:
        """Experts whose matrices are stored together: gate_up [experts, 2 * ffn, hidden], gates first, and down
        [experts, hidden, ffn]. Raises CheckpointError as `load`."""
        _check_choice(routing, len(gate_up))
        if operators.grouped_experts is not None:
            mixture = operators.grouped_experts(gate_up, down, routing)
            return cls(router, mixture, waits=False, summed_over=summed_over)
        mlps = [
            GatedMLP(Linear.bind(operators, up), Linear.bind(operators, out), operators.silu_mul)
            for up, out in zip(gate_up, down, strict=True)
        ]
        return cls(router, chosen_by_host(mlps, routing), waits=True, summed_over=summed_over)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        partial = self.partial(x)
        return partial if self._group is None else self._group.sum(partial)

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This process's part of the output, [T, hidden]: a sum over the processes completes it."""
        return self._mixture(x, self._router(x))


class WithSharedExpert:
    """Experts, and a shared expert for every token, weighted by the sigmoid of a score (Qwen2-MoE), or not at all."""

    def __init__(self, experts: Experts, shared: GatedMLP, gate: Linear | None = None) -> None:
        """gate: gives the score."""
        self.is_capturable = experts.is_capturable
        self._experts = experts
        self._shared = shared
        self._gate = gate

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        shared = self._shared.partial(x)
        if self._gate is not None:
            shared = self._gate(x).sigmoid() * shared
        return self._shared.completed(self._experts.partial(x) + shared)


def chosen_by_host(experts: Sequence[GatedMLP], routing: Routing) -> ExpertsFunction:
    """The mixture in which each expert has products of its own: the host reads which ones some token chooses."""

    def mix(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen, weights = choose_experts(scores, routing)  # [T, C] each
        weights = weights.to(x.dtype)
        output = torch.zeros_like(x)
        for index in sorted(set(chosen.flatten().tolist())):
            rows, places = (chosen == index).nonzero(as_tuple=True)
            output.index_add_(0, rows, experts[index].partial(x[rows]) * weights[rows, places, None])
        return output

    return mix


def _check_choice(routing: Routing, num_experts: int) -> None:
    num_eligible, groups = num_experts, routing.groups
    if groups is not None:
        size = num_experts // groups.count
        if size * groups.count != num_experts or groups.num_chosen > groups.count or groups.num_summed > size:
            raise CheckpointError(
                f"config.json: {num_experts} experts in {groups.count} groups, {groups.num_chosen} chosen, do not fit"
            )
        num_eligible = groups.num_chosen * size
    if routing.num_chosen > num_eligible:
        raise CheckpointError(f"config.json: {routing.num_chosen} of {num_eligible} experts cannot be chosen")


def _summed_over(weights: WeightSource, ffn: Size) -> Group | None:
    return weights.group if isinstance(ffn, Shard) and not ffn.is_whole else None


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
