"""LFM2-MoE: LFM2, but with a mixture of experts in place of the MLP in all layers but the lowest ones. Experts are
chosen by the sigmoid of a score and a correction."""

from engine.kernels.operators import Routing
from engine.layers.experts import Experts, load_expert
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridLM
from engine.models.lfm2 import mlp_names, short_conv_model


def lfm2_moe(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds LFM2-MoE."""
    hidden, ffn = config.require("hidden_size", int), config.require("intermediate_size", int)
    num_dense, num_experts = config.get("num_dense_layers", int, 2), config.get("num_experts", int, 32)
    expert_ffn = config.get("moe_intermediate_size", int, 1792)
    has_correction = config.get("use_expert_bias", bool, True)

    def load(index: int, name: str) -> FeedForward:
        if index < num_dense:
            return load_expert(weights, mlp_names(name), hidden, ffn)
        routing = Routing(
            config.get("num_experts_per_tok", int, 4),
            sums_to_one=config.get("norm_topk_prob", bool, True),
            is_sigmoid=True,
            correction=weights.take(f"{name}.expert_bias", num_experts).float() if has_correction else None,
            scale=config.get("routed_scaling_factor", float, 1.0),
        )
        router = Linear.load_router(weights, f"{name}.gate", hidden, num_experts)
        names = [mlp_names(f"{name}.experts.{expert}") for expert in range(num_experts)]
        return Experts.load(weights, router, names, hidden, expert_ffn, routing)

    return short_conv_model(config, weights, load)
