"""Mistral: Llama, but all layers read a sliding window, unless the checkpoint has none; in Ministral some layers do."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.windows import read_windows


def mistral(config: ConfigReader, weights: WeightSource) -> Llama:
    """Mistral: one window for all layers."""
    settings = LlamaConfig.read(config)
    return _without_biases(settings, (_window(config),) * settings.num_layers, weights)


def ministral(config: ConfigReader, weights: WeightSource) -> Llama:
    """Ministral: a window in the layers that `layer_types` lists."""
    settings = LlamaConfig.read(config)
    window = _window(config)
    windows = read_windows(config, window, [window is not None] * settings.num_layers)
    return _without_biases(settings, windows, weights)


def _window(config: ConfigReader) -> int | None:
    """None for null, which means no window; a missing key means the architecture's default."""
    return config.optional("sliding_window", int) if "sliding_window" in config else 4096


def _without_biases(settings: LlamaConfig, windows: tuple[int | None, ...], weights: WeightSource) -> Llama:
    return Llama(replace(settings, has_qkv_bias=False, has_output_bias=False, windows=windows), weights)
