"""Mixture of experts: each token goes through the few MLPs to which a router gives the highest probability.

Where the operators have a grouped product of gated MLPs, the experts' weights lie one after another, the device
chooses, and a step of any number of tokens can be a CUDA graph. Without one each expert has products of its own: on CPU
one call chooses and computes them all; elsewhere the host chooses, and calls each chosen expert on its own tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch

from engine.errors import CheckpointError
from engine.kernels.operators import (
    PLAIN_EXPERTS,
    Activation,
    ClampedGate,
    ExpertOptions,
    ExpertParts,
    ExpertsFunction,
    GroupedExperts,
    Operators,
    Routing,
    TanhGelu,
)
from engine.kernels.quantised import MatrixStack, QuantisedMatrix, QuantisedStack, joined
from engine.kernels.reference import choose_experts
from engine.layers.linear import Linear
from engine.layers.mlp import MLP, GatedMLP, clamped
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
        if weights.is_quantised(names[0].gate):
            mixture = _quantised_mixture(weights, names, hidden, ffn, routing)
            if mixture is not None:
                return cls(router, mixture, waits=False, summed_over=group)
            grouped = None
        else:
            grouped = _grouped(weights, routing)
        if grouped is None:
            mlps = [load_expert(weights, expert, hidden, ffn, has_all_rows=False) for expert in names]
            return cls(router, chosen_by_host(weights.operators, mlps, routing), waits=True, summed_over=group)
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
        gate_up = weights.take_stack(f"{name}.gate_up_proj", num_experts, Shard.stacked([ffn, ffn]), hidden)
        down = weights.take_stack(f"{name}.down_proj", num_experts, hidden, ffn)
        group = _summed_over(weights, ffn)
        return cls.stacked(weights, router, gate_up, down, routing, PLAIN_EXPERTS, summed_over=group)

    @classmethod
    def stacked(
        cls,
        weights: WeightSource,
        router: Linear,
        gate_up: MatrixStack,
        down: MatrixStack,
        routing: Routing,
        options: ExpertOptions,
        *,
        summed_over: Group | None,
    ) -> Self:
        """Experts whose matrices are stacked already: gate_up [experts, 2 * ffn, hidden], gates first, and down
        [experts, hidden, ffn]. Quantised ones stay quantised, with products of their own. summed_over: the processes
        that hold the other parts of each."""
        _check_choice(routing, len(down))
        grouped = _grouped(weights, routing)
        if grouped is not None and isinstance(gate_up, torch.Tensor) and isinstance(down, torch.Tensor):
            mixture = grouped(gate_up.contiguous(), down.contiguous(), routing, _own_biases(options, summed_over))
            return cls(router, mixture, waits=False, summed_over=summed_over)
        if isinstance(gate_up, QuantisedStack) and isinstance(down, QuantisedStack) and not routing.scales_inputs:
            bind = weights.operators.quantised_experts
            quantised = None if bind is None else bind(gate_up, down, routing, _own_biases(options, summed_over))
            if quantised is not None:
                return cls(router, quantised, waits=False, summed_over=summed_over)
        mlps = [_cut_out(weights, index, gate_up, down, options, summed_over) for index in range(len(down))]
        mixture = chosen_by_host(weights.operators, mlps, routing)
        return cls(router, mixture, waits=True, summed_over=summed_over)

    @classmethod
    def plain(cls, operators: Operators, router: Linear, mlps: Sequence[MLP], routing: Routing) -> Self:
        """Whole experts without a gate (Nemotron 3). The grouped product of the operators has none: the host
        chooses."""
        _check_choice(routing, len(mlps))
        return cls(router, chosen_by_host(operators, mlps, routing), waits=True, summed_over=None)

    def __call__(self, x: torch.Tensor, routed_by: torch.Tensor | None = None) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]. routed_by: what the router reads; None: x."""
        partial = self.partial(x, routed_by)
        return partial if self._group is None else self._group.sum(partial)

    def partial(self, x: torch.Tensor, routed_by: torch.Tensor | None = None) -> torch.Tensor:
        """This process's part of the output, [T, hidden]: a sum over the processes completes it."""
        return self._mixture(x, self._router(x if routed_by is None else routed_by))


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


def chosen_by_host(
    operators: Operators, experts: Sequence[GatedMLP] | Sequence[MLP], routing: Routing
) -> ExpertsFunction:
    """The mixture in which each expert has products of its own: in one call of the operators if they have that for
    these, otherwise each by itself."""
    parts = [ExpertParts(expert.up.multiply, expert.activation, expert.down.multiply) for expert in experts]
    return operators.mixture(parts, routing) or each_by_itself(experts, routing)


def each_by_itself(experts: Sequence[GatedMLP] | Sequence[MLP], routing: Routing) -> ExpertsFunction:
    """The host reads which experts some token chooses, and calls them one after another."""

    choose = _choose_by_softmax if routing.is_plain else choose_experts

    def mix(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen, weights = choose(scores, routing)  # [T, C] each
        weights = weights.to(x.dtype)
        output = torch.zeros_like(x)
        for index in sorted(set(chosen.flatten().tolist())):
            rows, places = (chosen == index).nonzero(as_tuple=True)
            own, weight = x[rows], weights[rows, places, None]
            result = experts[index].partial(own * weight if routing.scales_inputs else own)
            output.index_add_(0, rows, result if routing.scales_inputs else result * weight)
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


def _choose_by_softmax(scores: torch.Tensor, routing: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    """As choose_experts, in a fifth of its time for one token; of equal scores any is chosen."""
    weights, chosen = scores.softmax(dim=-1, dtype=torch.float32).topk(routing.num_chosen, dim=-1)
    if routing.sums_to_one:
        weights /= weights.sum(dim=-1, keepdim=True)
    return chosen, weights


def _summed_over(weights: WeightSource, ffn: Size) -> Group | None:
    return weights.group if isinstance(ffn, Shard) and not ffn.is_whole else None


def load_expert(
    weights: WeightSource, names: ExpertNames, hidden: int, ffn: Size, *, has_all_rows: bool = True
) -> GatedMLP:
    """An expert by itself: gate and up [ffn, hidden], down [hidden, ffn]. has_all_rows: every token goes through it."""
    gate_up = Linear.fused(weights, [names.gate, names.up], hidden, [ffn, ffn], bias=False, has_all_rows=has_all_rows)
    down = Linear.load(weights, names.down, ffn, hidden, bias=False, has_all_rows=has_all_rows)
    return GatedMLP(gate_up, down, weights.operators.silu_mul)


def _grouped(weights: WeightSource, routing: Routing) -> GroupedExperts | None:
    """The operators' grouped product; None where there is none for this routing."""
    return None if routing.scales_inputs else weights.operators.grouped_experts


def _own_biases(options: ExpertOptions, summed_over: Group | None) -> ExpertOptions:
    """Without the outputs' biases where another process adds them to the sum: rank 0."""
    is_first = summed_over is None or summed_over.place.rank == 0
    return options if is_first else replace(options, down_bias=None)


class _UnlikeMatrices(Exception):
    """The gate and the up of an expert cannot be one quantised matrix."""


def _quantised_mixture(
    weights: WeightSource, names: Sequence[ExpertNames], hidden: int, ffn: Size, routing: Routing
) -> ExpertsFunction | None:
    """The operators' mixture of quantised experts; None: there is none for these."""
    bind = None if routing.scales_inputs else weights.operators.quantised_experts
    if bind is None:
        return None

    def gate_up(index: int) -> QuantisedMatrix:
        parts = [weights.take_linear_weight(name, ffn, hidden) for name in (names[index].gate, names[index].up)]
        quantised = [part for part in parts if isinstance(part, QuantisedMatrix)]
        whole = joined(quantised) if len(quantised) == len(parts) else None
        if whole is None:
            raise _UnlikeMatrices
        return whole

    def down(index: int) -> QuantisedMatrix:
        matrix = weights.take_linear_weight(names[index].down, hidden, ffn)
        if not isinstance(matrix, QuantisedMatrix):
            raise _UnlikeMatrices
        return matrix

    try:
        return bind(QuantisedStack(len(names), gate_up), QuantisedStack(len(names), down), routing)
    except _UnlikeMatrices:
        return None


def _cut_out(
    weights: WeightSource,
    index: int,
    gate_up: MatrixStack,
    down: MatrixStack,
    options: ExpertOptions,
    summed_over: Group | None,
) -> GatedMLP:
    """An expert by itself out of stacked ones."""
    operators = weights.operators

    def bias_in(stack: torch.Tensor | None) -> torch.Tensor | None:
        return None if stack is None else stack[index].to(weights.dtype)

    return GatedMLP(
        Linear.bind(operators, gate_up[index], bias_in(options.gate_up_bias)),
        Linear.bind(operators, down[index], bias_in(options.down_bias), summed_over=summed_over),
        _activation(operators, options.gate),
    )


def _activation(operators: Operators, gate: ClampedGate | TanhGelu | None) -> Activation:
    match gate:
        case None:
            return operators.silu_mul
        case TanhGelu():
            return operators.gelu_tanh_mul
        case ClampedGate():
            return clamped(gate)


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
