"""The feed-forward part of Gemma 4 with experts: they stand beside the MLP, each with norms of its own before and
behind it, and the router reads the stream through another norm."""

from dataclasses import dataclass

import torch

from engine.kernels.operators import ExpertOptions, Routing, TanhGelu
from engine.layers.experts import Experts
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
    """Raises CheckpointError for a config that is incomplete."""
    return ExpertSettings(
        config.require("num_experts", int),
        config.require("top_k_experts", int),
        config.require("moe_intermediate_size", int),
    )


def add_update(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
    """Stands for the norm before this part: adds the update and returns the residual stream as it is."""
    return stream if update is None else stream.add_(update)


class MLPWithExperts:
    """norm(mlp(norm(stream))) + norm(experts(norm(stream))), four norms."""

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
        self._experts = _experts(settings, name, hidden, weights)
        self.is_capturable = self._experts.is_capturable

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: the stream itself, [T, hidden] -> [T, hidden]."""
        chosen = self._experts(self._experts_norm(x), self._router_norm(x))
        output = self._mlp_output_norm(self._mlp(self._mlp_norm(x)))
        return output.add_(self._experts_output_norm(chosen))


def _experts(settings: ExpertSettings, name: str, hidden: int, weights: WeightSource) -> Experts:
    num_experts = settings.num_experts
    size = Shard.even(settings.size, weights.group.place, "moe_intermediate_size")
    gate_ups = weights.take_matrix(f"{name}.experts.gate_up_proj", num_experts, Shard.stacked([size, size]), hidden)
    downs = weights.take_matrix(f"{name}.experts.down_proj", num_experts, hidden, size)
    scales = weights.take(f"{name}.router.per_expert_scale", num_experts, dtype=torch.float32)
    return Experts.stacked(
        weights,
        Linear.load_router(weights, f"{name}.router.proj", hidden, num_experts),
        gate_ups,
        downs,
        Routing(settings.num_chosen, sums_to_one=True, expert_scales=scales),
        ExpertOptions(gate=TanhGelu()),
        summed_over=None if size.is_whole else weights.group,
    )
