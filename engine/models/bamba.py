"""Bamba: Mamba-2 layers, attention with half-rotated heads in the layers that the config lists, and gated MLPs."""

from dataclasses import replace

from engine.errors import CheckpointError
from engine.layers.decoder import DecoderLayer, Mixer
from engine.layers.embedding import TokenEmbedding
from engine.layers.linear import Linear
from engine.layers.mamba2 import Mamba2, Mamba2Weights
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridLM, HybridParts, load_attention, read_mamba2_sizes, read_shape
from engine.models.rope import read_rope

#: The part of every head's channels that rotates; the architecture has no setting for it.
_ROTATED_SHARE = 0.5


def bamba(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Bamba."""
    sizes, shape = read_mamba2_sizes(config), read_shape(config)
    config.expect("attn_rotary_emb", int(shape.head_dim * _ROTATED_SHARE))
    hidden, eps, vocab_size = sizes.hidden, sizes.norm_eps, config.require("vocab_size", int)
    num_layers = config.require("num_hidden_layers", int)
    listed = config.get("attn_layer_indices", list, [])
    if not all(isinstance(index, int) and 0 <= index < num_layers for index in listed):
        raise CheckpointError(f"config.json: attn_layer_indices are not layers below {num_layers}")
    has_attention = [index in set(listed) for index in range(num_layers)]
    has_bias = config.get("attention_bias", bool, False)
    layers = []
    for index in range(num_layers):
        name, num_attention = f"model.layers.{index}", sum(has_attention[:index])
        if has_attention[index]:
            mixer: Mixer = load_attention(weights, f"{name}.self_attn", num_attention, shape, hidden, bias=has_bias)
        else:
            state_id = 2 * (index - num_attention)
            mixer = Mamba2(state_id, state_id + 1, sizes, Mamba2Weights.load(weights, f"{name}.mamba", sizes))
        layers.append(
            DecoderLayer(
                mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
                mixer=mixer,
                mlp_norm=RMSNorm.load(weights, f"{name}.pre_ff_layernorm", hidden, eps),
                mlp=_mlp(config, f"{name}.feed_forward", hidden, weights),
                rotation=0,
            )
        )
    head = None if config.get("tie_word_embeddings", bool, False) else "lm_head"
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("max_position_embeddings", int, 262_144),
        attention_shapes=(shape,) * sum(has_attention),
        state_shapes=sizes.state_shapes(weights.dtype) * (num_layers - sum(has_attention)),
        tokens=TokenEmbedding.load(weights, "model.embed_tokens", vocab_size, hidden, head=head),
        layers=layers,
        norm=RMSNorm.load(weights, "model.final_layernorm", hidden, eps),
        rotary=replace(read_rope(config), share=_ROTATED_SHARE).rotary(shape.head_dim),
    )
    return HybridLM(parts, weights)


def _mlp(config: ConfigReader, name: str, hidden: int, weights: WeightSource) -> GatedMLP:
    ffn, bias = config.require("intermediate_size", int), config.get("mlp_bias", bool, False)
    gate_up = Linear.fused(weights, [f"{name}.gate_proj", f"{name}.up_proj"], hidden, [ffn, ffn], bias=bias)
    down = Linear.load(weights, f"{name}.down_proj", ffn, hidden, bias=bias)
    return GatedMLP(gate_up, down, weights.operators.silu_mul)
