"""Bamba: Mamba-2 layers, attention with half-rotated heads in the layers that the config lists, and gated MLPs."""

from dataclasses import replace

from engine.errors import CheckpointError
from engine.layers.linear import Linear
from engine.layers.mamba2 import Mamba2, Mamba2Weights
from engine.layers.mlp import GatedMLP
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridKinds, HybridLM, load_hybrid, read_mamba2_sizes, read_shape
from engine.models.rope import read_rope

#: The part of every head's channels that rotates; the architecture has no setting for it.
_ROTATED_SHARE = 0.5


def bamba(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Bamba."""
    sizes, shape = read_mamba2_sizes(config), read_shape(config)
    config.expect("attn_rotary_emb", int(shape.head_dim * _ROTATED_SHARE))
    num_layers = config.require("num_hidden_layers", int)
    listed = config.get("attn_layer_indices", list, [])
    if not all(isinstance(index, int) and 0 <= index < num_layers for index in listed):
        raise CheckpointError(f"config.json: attn_layer_indices are not layers below {num_layers}")

    def recurrence(name: str, state_id: int) -> Mamba2:
        return Mamba2(state_id, state_id + 1, sizes, Mamba2Weights.load(weights, name, sizes))

    kinds = HybridKinds(
        has_attention=[index in set(listed) for index in range(num_layers)],
        state_shapes=sizes.state_shapes(weights.dtype),
        recurrence=recurrence,
        feed_forward=lambda name, _: _mlp(config, name, sizes.hidden, weights),
        norm_eps=sizes.norm_eps,
    )
    rotary = replace(read_rope(config), share=_ROTATED_SHARE).rotary(shape.head_dim)
    has_bias = config.get("attention_bias", bool, False)
    return load_hybrid(config, weights, kinds, rotary=rotary, has_attention_bias=has_bias)


def _mlp(config: ConfigReader, name: str, hidden: int, weights: WeightSource) -> GatedMLP:
    ffn, bias = config.require("intermediate_size", int), config.get("mlp_bias", bool, False)
    gate_up = Linear.fused(weights, [f"{name}.gate_proj", f"{name}.up_proj"], hidden, [ffn, ffn], bias=bias)
    down = Linear.load(weights, f"{name}.down_proj", ffn, hidden, bias=bias)
    return GatedMLP(gate_up, down, weights.operators.silu_mul)
