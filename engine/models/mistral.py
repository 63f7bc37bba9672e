"""Mistral: Llama, but all layers read a sliding window, unless the checkpoint has none; in Ministral some layers do."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.windows import read_windows


def mistral(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Mistral: one window for all layers."""
    return Llama(read_mistral(config), weights)


def ministral(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Ministral: a window in the layers that `layer_types` lists."""
    settings = read_mistral(config)
    window = settings.windows[0]
    windows = read_windows(config, window, [window is not None] * settings.num_layers)
    return Llama(replace(settings, windows=windows), weights)


def read_mistral(config: ConfigReader) -> LlamaConfig:
    """The settings of Mistral. A null for the window means none; a missing key means the architecture's default."""
    settings = LlamaConfig.read(config)
    window = config.optional("sliding_window", int) if "sliding_window" in config else 4096
    windows = (window,) * settings.num_layers
    return replace(settings, has_qkv_bias=False, has_output_bias=False, windows=windows)
