"""Ministral 3: Mistral with YaRN, and with queries that grow with their position beyond the original context."""

from dataclasses import replace

from engine.layers.rotary import QueryScaling
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import Rope, original_context, require_rope_section, rope_in


def ministral3(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Ministral 3: one window for all layers, or none."""
    return Llama(read_ministral3(config), weights)


def read_ministral3(config: ConfigReader) -> LlamaConfig:
    """The settings of Ministral 3."""
    settings = LlamaConfig.read(config)
    return replace(
        settings,
        norm_eps=config.get("rms_norm_eps", float, 1e-5),
        windows=(config.optional("sliding_window", int),) * settings.num_layers,
        rope=_read_rope(config, settings.max_positions),
        has_qkv_bias=False,
        has_output_bias=False,
        has_mlp_bias=False,
    )


def _read_rope(config: ConfigReader, max_positions: int) -> Rope:
    """Queries grow only where a longer context than the original one is served: below it all factors are one."""
    section = require_rope_section(config)
    rope = rope_in(section, Rope(config.get("rope_theta", float, 10_000.0)))
    beta, original = section.get("llama_4_scaling_beta", float, 0.0), original_context(section)
    is_scaled = beta > 0.0 and (config.served_context or max_positions) > original
    return replace(rope, query_scaling=QueryScaling(beta, original)) if is_scaled else rope
