"""Qwen3-MoE: Qwen3, but a mixture of experts in place of the MLP, in all layers or in those that the config says."""

from collections.abc import Callable
from dataclasses import replace

import torch

from engine.layers.experts import Experts
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig, gated_mlp


def qwen3_moe(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    num_experts = config.get("num_experts", int, config.get("num_local_experts", int, 128))
    num_chosen = config.get("num_experts_per_tok", int, 8)
    sums_to_one = config.get("norm_topk_prob", bool, False)
    ffn = config.get("moe_intermediate_size", int, 768)
    period = config.get("decoder_sparse_step", int, 1)
    dense = config.get("mlp_only_layers", list, [])

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> Callable[[torch.Tensor], torch.Tensor]:
        if layer_id in dense or (layer_id + 1) % period:
            return gated_mlp(settings, layer_id, weights)
        name, hidden = f"model.layers.{layer_id}.mlp", settings.hidden_size
        experts = []
        for part in (f"{name}.experts.{index}" for index in range(num_experts)):
            gate_up = [f"{part}.gate_proj", f"{part}.up_proj"]
            experts.append(
                GatedMLP(
                    Linear.fused(weights, gate_up, hidden, [ffn, ffn], bias=False),
                    Linear.load(weights, f"{part}.down_proj", ffn, hidden, bias=False),
                    weights.operators.silu_mul,
                )
            )
        router = Linear.load(weights, f"{name}.gate", hidden, num_experts, bias=False)
        return Experts(router, experts, num_chosen=num_chosen, sums_to_one=sums_to_one)

    settings = replace(LlamaConfig.read(config), has_head_norm=True, load_mlp=load_mlp)
    # One rule for all layers: here max_window_layers is not looked at.
    window = config.optional("sliding_window", int) if config.get("use_sliding_window", bool, False) else None
    return Llama(replace(settings, windows=(window,) * settings.num_layers), weights, dtype)
