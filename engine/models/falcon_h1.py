"""Falcon-H1: attention and Mamba-2 read the same norm in every layer, and multipliers almost everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.attention.backend import AttentionShape, ForwardBatch
from engine.attention.rotation import Rotation
from engine.errors import CheckpointError
from engine.kernels.operators import Activation
from engine.layers.decoder import DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.linear import Linear
from engine.layers.mamba2 import Mamba2, Mamba2Sizes, Mamba2Weights
from engine.layers.mixer import Mixer
from engine.layers.norm import RMSNorm
from engine.layers.scaled import ScaledMixer
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridLM, HybridParts, load_attention, read_mamba2_sizes, read_shape
from engine.models.rope import read_rope


def falcon_h1(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Falcon-H1."""
    sizes, shape = _sizes(config), read_shape(config)
    key_factor = _factor(config, "key_multiplier")
    shape = replace(shape, score_scale=shape.scale * key_factor)  # instead of scaled keys: the scores are the same
    hidden, eps, vocab_size = sizes.hidden, sizes.norm_eps, config.require("vocab_size", int)
    num_layers = config.require("num_hidden_layers", int)
    head = None if config.get("tie_word_embeddings", bool, False) else "lm_head"
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("max_position_embeddings", int, 8192),
        attention_shapes=(shape,) * num_layers,
        state_shapes=sizes.state_shapes(weights.dtype) * num_layers,
        tokens=TokenEmbedding.load(weights, "model.embed_tokens", vocab_size, hidden, head=head),
        layers=[_layer(config, index, sizes, shape, weights) for index in range(num_layers)],
        norm=RMSNorm.load(weights, "model.final_layernorm", hidden, eps),
        rotary=read_rope(config).rotary(shape.head_dim),
        embedding_factor=_factor(config, "embedding_multiplier"),
        logit_factor=_factor(config, "lm_head_multiplier"),
    )
    return HybridLM(parts, weights)


@dataclass(frozen=True)
class Both:
    """The sum of two mixers that read the same rows."""

    first: Mixer
    second: Mixer

    @property
    def is_capturable(self) -> bool:
        """Whether both are."""
        return all(getattr(mixer, "is_capturable", True) for mixer in (self.first, self.second))

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.first(x, rotation, batch).add_(self.second(x, rotation, batch))


@dataclass(frozen=True)
class _ScaledMLP:
    """down_factor * down(silu(gate_factor * gate(x)) * up(x))."""

    gate_up: Linear
    down: Linear
    silu_mul: Activation
    gate_factor: float
    down_factor: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate_up = self.gate_up(x)
        gate_up[:, : gate_up.shape[1] // 2].mul_(self.gate_factor)
        return self.down(self.silu_mul(gate_up)).mul_(self.down_factor)


def _layer(
    config: ConfigReader, index: int, sizes: Mamba2Sizes, shape: AttentionShape, weights: WeightSource
) -> DecoderLayer:
    name, hidden, eps = f"model.layers.{index}", sizes.hidden, sizes.norm_eps
    mamba = Mamba2(
        2 * index,
        2 * index + 1,
        sizes,
        Mamba2Weights.load(weights, f"{name}.mamba", sizes),
        _ssm_factors(config),
    )
    scaled_mamba = ScaledMixer(mamba, _factor(config, "ssm_out_multiplier"), _factor(config, "ssm_in_multiplier"))
    attention = load_attention(
        weights, f"{name}.self_attn", index, shape, hidden, bias=config.get("attention_bias", bool, False)
    )
    scaled_attention = ScaledMixer(
        attention, _factor(config, "attention_out_multiplier"), _factor(config, "attention_in_multiplier")
    )
    ffn, bias = config.require("intermediate_size", int), config.get("mlp_bias", bool, False)
    mlp = f"{name}.feed_forward"
    gate_factor, down_factor = _factors(config, "mlp_multipliers", 2)
    return DecoderLayer(
        mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
        mixer=Both(scaled_mamba, scaled_attention),
        mlp_norm=RMSNorm.load(weights, f"{name}.pre_ff_layernorm", hidden, eps),
        mlp=_ScaledMLP(
            Linear.fused(weights, [f"{mlp}.gate_proj", f"{mlp}.up_proj"], hidden, [ffn, ffn], bias=bias),
            Linear.load(weights, f"{mlp}.down_proj", ffn, hidden, bias=bias),
            weights.operators.silu_mul,
            gate_factor,
            down_factor,
        ),
        rotation=0,
    )


def _sizes(config: ConfigReader) -> Mamba2Sizes:
    sizes = read_mamba2_sizes(config, config.optional("mamba_d_ssm", int))
    return replace(
        sizes,
        has_output_bias=config.get("projectors_bias", bool, False),
        has_norm=config.get("mamba_rms_norm", bool, False),
        is_gated_first=not config.get("mamba_norm_before_gate", bool, True),
    )


def _ssm_factors(config: ConfigReader) -> tuple[float, float, float, float, float]:
    gate, x, b, c, dt = _factors(config, "ssm_multipliers", 5)
    return gate, x, b, c, dt


def _factor(config: ConfigReader, key: str) -> float:
    return config.get(key, float, 1.0)


def _factors(config: ConfigReader, key: str, count: int) -> Sequence[float]:
    factors = config.get(key, list, [1.0] * count)
    if len(factors) != count or not all(isinstance(factor, int | float) for factor in factors):
        raise CheckpointError(f"config.json: {key} must be {count} numbers")
    return [float(factor) for factor in factors]
