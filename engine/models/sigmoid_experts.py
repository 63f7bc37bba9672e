"""The mixture of experts of DeepSeek V3, which GLM-4.5 has too: sigmoid scores, a learned correction of the choice,
groups of experts, shared experts, and MLPs in the first layers."""

from collections.abc import Collection
from dataclasses import replace

import torch

from engine.kernels.operators import ExpertGroups, Routing
from engine.layers.experts import ExpertNames
from engine.layers.mlp import FeedForward
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import LlamaConfig, MLPLoader, gated_mlp
from engine.models.mixtures import SharedExpert, load_mixture


def sigmoid_experts(config: ConfigReader, dense_layers: Collection[int] | None = None) -> MLPLoader:
    """A loader of the feed-forward part of each layer. dense_layers: those without experts; None: the first ones, as
    many as the config says. Raises CheckpointError for another kind of routing."""
    config.expect("scoring_func", "sigmoid")
    config.expect("topk_method", "noaux_tc")
    config.expect("moe_layer_freq", 1)
    if dense_layers is None:
        dense_layers = range(config.require("first_k_dense_replace", int))
    num_experts = config.require("n_routed_experts", int)
    num_shared = config.get("n_shared_experts", int, 0)
    ffn = config.require("moe_intermediate_size", int)
    routing = read_sigmoid_routing(config)

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        if layer_id in dense_layers:
            return gated_mlp(settings, layer_id, weights)
        name = f"model.layers.{layer_id}.mlp"
        # Differences between experts are smaller than what bfloat16 keeps.
        correction = weights.take(f"{name}.gate.e_score_correction_bias", num_experts, dtype=torch.float32)
        return load_mixture(
            weights,
            f"{name}.gate",
            [ExpertNames.projections(f"{name}.experts.{index}") for index in range(num_experts)],
            settings.hidden_size,
            ffn,
            replace(routing, correction=correction),
            SharedExpert(f"{name}.shared_experts", num_shared * ffn) if num_shared else None,
        )

    return load_mlp


def read_sigmoid_routing(config: ConfigReader) -> Routing:
    """The routing without the correction, which is a tensor of each layer."""
    num_groups = config.get("n_group", int, 1)
    return Routing(
        config.require("num_experts_per_tok", int),
        sums_to_one=config.get("norm_topk_prob", bool, True),
        is_sigmoid=True,
        groups=None if num_groups == 1 else ExpertGroups(num_groups, config.get("topk_group", int, 1), num_summed=2),
        scale=config.get("routed_scaling_factor", float, 1.0),
    )
