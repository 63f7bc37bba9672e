"""The feed-forward part of Gemma 4 with experts: they stand beside the MLP, each with norms of its own before and
behind it, and the router reads the stream through another norm."""

from dataclasses import dataclass

import torch

from engine.errors import CheckpointError
from engine.kernels.operators import ExpertsFunction, Routing
from engine.layers.experts import chosen_by_host
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.parallel.shard import Shard


@dataclass(frozen=True)
class ExpertSettings:
    """Numbers of experts and their size."""

    num_experts: int
    num_chosen: int
    size: int


def read_experts(config: ConfigReader) -> ExpertSettings:
    """Raises CheckpointError for a config that is incomplete, or that chooses more experts than there are."""
    num_experts, num_chosen = config.require("num_experts", int), config.require("top_k_experts", int)
    if num_chosen > num_experts:
        raise CheckpointError(f"config.json: {num_chosen} of {num_experts} experts cannot be chosen")
    return ExpertSettings(num_experts, num_chosen, config.require("moe_intermediate_size", int))


def add_update(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
    """Stands for the norm before this part: adds the update and returns the residual stream as it is."""
    return stream if update is None else stream.add_(update)


class MLPWithExperts:
    """norm(mlp(norm(stream))) + norm(experts(norm(stream))), four norms."""

    is_capturable = False  # the host chooses the experts

    def __init__(
        self,
        settings: ExpertSettings,
        mlp: GatedMLP,
        mlp_norm: RMSNorm,
        name: str,
        hidden: int,
        eps: float,
        weights: WeightSource,
    ) -> None:
        """name: of the layer. mlp_norm: before the MLP."""
        self._mlp = mlp
        self._mlp_norm = mlp_norm
        self._experts_norm, self._mlp_output_norm, self._experts_output_norm = (
            RMSNorm.load(weights, f"{name}.{each}", hidden, eps)
            for each in ("pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2")
        )
        scale = weights.take(f"{name}.router.scale", hidden).float() * hidden**-0.5
        self._router_norm = RMSNorm(weights.operators.rms_norm(scale, eps))
        self._router = Linear.load(weights, f"{name}.router.proj", hidden, settings.num_experts, bias=False)
        self._mixture = _mixture(settings, name, hidden, weights)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: the stream itself, [T, hidden] -> [T, hidden]."""
        scores = self._router(self._router_norm(x))
        chosen = self._mixture(self._experts_norm(x), scores)
        output = self._mlp_output_norm(self._mlp(self._mlp_norm(x)))
        return output.add_(self._experts_output_norm(chosen))


def _mixture(settings: ExpertSettings, name: str, hidden: int, weights: WeightSource) -> ExpertsFunction:
    num_experts, operators = settings.num_experts, weights.operators
    size = Shard.even(settings.size, weights.group.place, "moe_intermediate_size")
    group = None if size.is_whole else weights.group
    gate_ups = weights.take_matrix(f"{name}.experts.gate_up_proj", num_experts, Shard.stacked([size, size]), hidden)
    downs = weights.take_matrix(f"{name}.experts.down_proj", num_experts, hidden, size)
    experts = [
        GatedMLP(Linear.bind(operators, gate_up), Linear.bind(operators, down), operators.gelu_tanh_mul)
        for gate_up, down in zip(gate_ups, downs, strict=True)
    ]
    factors = weights.take(f"{name}.router.per_expert_scale", num_experts).float()
    mix = chosen_by_host(experts, Routing(settings.num_chosen, sums_to_one=True), factors)
    return mix if group is None else lambda x, scores: group.sum(mix(x, scores))
