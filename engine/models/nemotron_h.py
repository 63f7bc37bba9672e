"""Nemotron-H and Nemotron 3: one part per layer, a Mamba-2 layer, attention without positions, an MLP with squared
relu, or a mixture of experts of such MLPs."""

import re
from dataclasses import replace

import torch

from engine.errors import CheckpointError
from engine.kernels.operators import Activation
from engine.layers.decoder import DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.mamba2 import Mamba2, Mamba2Sizes, Mamba2Weights
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_bounds import BOUNDS
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import (
    HybridLM,
    HybridParts,
    checked_kinds,
    checked_mamba2_sizes,
    load_attention,
    read_shape,
    read_step_limits,
)
from engine.models.nemotron_experts import NemotronExperts, NemotronMixture, load_plain

#: Layers that predict several tokens at once.
NEXT_TOKEN_LAYERS_OF_NEMOTRON = re.compile(r"mtp\..*")

#: Letters of `hybrid_override_pattern`, which older checkpoints have.
_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_h(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Nemotron-H."""
    config.expect("mlp_hidden_act", "relu2")
    config.expect("mamba_hidden_act", "silu")
    config.expect("residual_in_fp32", False)
    config.expect("sliding_window")
    config.expect("attention_bias", False)
    kinds, shape, sizes = _read_kinds(config), read_shape(config), _sizes(config)
    hidden, eps, vocab_size = sizes.hidden, sizes.norm_eps, config.require("vocab_size", int)
    ffn, has_bias = config.require("intermediate_size", int), config.get("mlp_bias", bool, False)
    experts = NemotronExperts.read(config) if "moe" in kinds else None
    activation = _squared(weights.operators.relu)
    layers = []
    for index, kind in enumerate(kinds):
        name, number = f"backbone.layers.{index}", kinds[:index].count(kind)
        norm = RMSNorm.load(weights, f"{name}.norm", hidden, eps)
        if kind == "mlp":
            mlp = load_plain(weights, f"{name}.mixer", hidden, ffn, activation, bias=has_bias)
            layers.append(DecoderLayer(None, None, norm, mlp))
        elif kind == "moe":
            assert experts is not None
            mixture = NemotronMixture.load(experts, f"{name}.mixer", hidden, activation, weights)
            layers.append(DecoderLayer(None, None, norm, mixture))
        elif kind == "attention":
            layers.append(DecoderLayer(norm, load_attention(weights, f"{name}.mixer", number, shape, hidden)))
        else:
            loaded = Mamba2Weights.load(weights, f"{name}.mixer", sizes)
            layers.append(DecoderLayer(norm, Mamba2(2 * number, 2 * number + 1, sizes, loaded)))
    head = None if config.get("tie_word_embeddings", bool, False) else "lm_head"
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("max_position_embeddings", int, 4096),
        attention_shapes=(shape,) * kinds.count("attention"),
        state_shapes=sizes.state_shapes(weights.dtype) * kinds.count("mamba"),
        tokens=TokenEmbedding.load(weights, "backbone.embeddings", vocab_size, hidden, head=head),
        layers=layers,
        norm=RMSNorm.load(weights, "backbone.norm_f", hidden, eps),
    )
    return HybridLM(parts, weights)


def _squared(relu: Activation) -> Activation:
    def activate(x: torch.Tensor) -> torch.Tensor:
        return relu(x).square_()

    return activate


def _read_kinds(config: ConfigReader) -> list[str]:
    pattern = config.optional("hybrid_override_pattern", str)
    kinds: list[object]
    if pattern is not None:
        kinds = [_PATTERN.get(letter, letter) for letter in pattern]
    else:
        kinds = config.get("layers_block_type", list, config.get("layer_types", list, []))
    _, most = BOUNDS["num_hidden_layers"]
    if len(kinds) > most:
        raise CheckpointError(f"config.json: {len(kinds)} layers are more than {most}")
    num_layers = config.get("num_hidden_layers", int, len(kinds))
    return checked_kinds(kinds, num_layers, "mamba", "attention", "mlp", "moe")


def _sizes(config: ConfigReader) -> Mamba2Sizes:
    num_heads, head_dim = config.get("mamba_num_heads", int, 128), config.get("mamba_head_dim", int, 64)
    has_bias = config.get("use_bias", bool, False)
    sizes = Mamba2Sizes(
        hidden=config.require("hidden_size", int),
        num_heads=num_heads,
        head_dim=head_dim,
        num_groups=config.get("n_groups", int, 8),
        num_states=config.get("ssm_state_size", int, 128),
        num_taps=config.get("conv_kernel", int, 4),
        # Not time_step_min, which only initialises weights: transformers clamps steps of prompts with it, but not those
        # of single tokens.
        step_limits=read_step_limits(config),
        norm_eps=config.get("layer_norm_epsilon", float, config.get("norm_eps", float, 1e-5)),
        has_bias=has_bias,
        has_conv_bias=config.get("use_conv_bias", bool, True),
    )
    return checked_mamba2_sizes(replace(sizes, has_output_bias=has_bias), num_heads * head_dim)
