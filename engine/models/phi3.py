"""Phi-3 and Phi-4: Llama, but q, k and v are one tensor, and gate and up are another. Some versions rotate only a part
of each head, some read a window."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig


def phi3(config: ConfigReader, weights: WeightSource) -> Llama:
    """One window for all layers, or none."""
    settings = LlamaConfig.read(config)
    windows = (config.optional("sliding_window", int),) * settings.num_layers
    settings = replace(settings, windows=windows, has_fused_weights=True, has_qkv_bias=False, has_output_bias=False)
    return Llama(settings, weights)
