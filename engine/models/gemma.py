"""Gemma 1: Llama, but with scaled embeddings, norms with scales around one, and gelu in the MLP."""

from dataclasses import replace

import torch

from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.gemma2 import norm_around_one
from engine.models.llama import Llama, LlamaConfig
from engine.parallel.shard import Shard


def gemma(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Gemma 1. Where early checkpoints say "gelu" they mean its tanh form, too."""
    for key in ("hidden_act", "hidden_activation"):
        config.expect(key, "gelu_pytorch_tanh", "gelu")
    config.expect("use_bidirectional_attention", False)
    settings = LlamaConfig.read(config, is_gated=False)
    settings = replace(
        settings,
        max_positions=config.get("max_position_embeddings", int, 8192),
        is_tied=config.get("tie_word_embeddings", bool, True),
        # Rounded as the checkpoints were trained: 55.5 and not 55.4256 for 3,072 channels in bfloat16.
        embedding_scale=torch.tensor(settings.hidden_size**0.5).to(weights.dtype).item(),
        load_norm=norm_around_one,
        load_mlp=_mlp,
    )
    return Llama(settings, weights)


def _mlp(config: LlamaConfig, layer_id: int, weights: WeightSource) -> GatedMLP:
    name, hidden = f"model.layers.{layer_id}.mlp", config.hidden_size
    ffn = Shard.even(config.intermediate_size, weights.group.place, "intermediate_size")
    gate_up = [f"{name}.gate_proj", f"{name}.up_proj"]
    return GatedMLP(
        Linear.fused(weights, gate_up, hidden, [ffn, ffn], bias=False),
        Linear.load(weights, f"{name}.down_proj", ffn, hidden, bias=False),
        weights.operators.gelu_tanh_mul,
    )
