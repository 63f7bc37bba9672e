"""MiniMax M2: Llama, but with norms over the whole projections of queries and of keys, partly rotated heads, and
experts that corrected sigmoids choose."""

from dataclasses import replace

import torch

from engine.errors import CheckpointError
from engine.kernels.operators import Routing
from engine.layers.experts import ExpertNames
from engine.layers.mlp import FeedForward
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.mixtures import load_mixture
from engine.models.olmo2 import normed_qkv
from engine.models.rope import read_rope


def minimax_m2(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds MiniMax M2."""
    config.expect("scoring_func", "sigmoid")
    config.expect("use_routing_bias", True)
    config.expect("use_qk_norm", True)
    config.expect("qk_norm_type", "per_layer")
    config.expect("shared_intermediate_size", 0)
    if any(kind != 1 for kind in config.get("attn_type_list", list, [])):
        raise CheckpointError("config.json: attn_type_list must be 1 in all layers: others have linear attention")
    num_experts = config.require("num_local_experts", int)
    routing = Routing(config.require("num_experts_per_tok", int), sums_to_one=True, is_sigmoid=True)

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        name = f"model.layers.{layer_id}.block_sparse_moe"
        experts = [f"{name}.experts.{index}" for index in range(num_experts)]
        return load_mixture(
            weights,
            f"{name}.gate",
            [ExpertNames(f"{expert}.w1", f"{expert}.w3", f"{expert}.w2") for expert in experts],
            settings.hidden_size,
            settings.intermediate_size,
            replace(
                routing,
                correction=weights.take(f"{name}.e_score_correction_bias", num_experts, dtype=torch.float32),
            ),
        )

    settings = LlamaConfig.read(config)
    # Published checkpoints give a number of channels in place of a share.
    head_dim = settings.shape.head_dim
    num_rotated = config.get("rotary_dim", int, head_dim)
    if num_rotated > head_dim:
        raise CheckpointError(f"config.json: rotary_dim {num_rotated} is more than the {head_dim} channels of a head")
    settings = replace(
        settings,
        rope=read_rope(config, default_base=5_000_000.0, default_share=num_rotated / head_dim),
        has_qkv_bias=False,
        has_output_bias=False,
        has_mlp_bias=False,
        load_qkv=normed_qkv,
        load_mlp=load_mlp,
    )
    return Llama(settings, weights)
