"""ERNIE 4.5: Llama, but adjacent channels rotate together."""

from dataclasses import replace

from engine.layers.adjacent_pairs import AdjacentPairs
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import read_rope


def ernie4_5(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds the dense ERNIE 4.5."""
    settings = read_ernie4_5(config)
    head_dim = settings.shape.head_dim
    return Llama(settings, AdjacentPairs(weights, head_dim=head_dim, num_rotated=head_dim))


def read_ernie4_5(config: ConfigReader) -> LlamaConfig:
    """The settings that the dense model and the mixture of experts share."""
    has_bias = config.get("use_bias", bool, False)
    return replace(
        LlamaConfig.read(config),
        max_positions=config.get("max_position_embeddings", int, 131_072),
        norm_eps=config.get("rms_norm_eps", float, 1e-5),
        rope=read_rope(config, default_base=500_000.0),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=has_bias,
        is_tied=config.get("tie_word_embeddings", bool, True),
    )
