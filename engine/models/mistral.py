"""Mistral: Llama, but every layer reads a sliding window, unless the checkpoint has none. Ministral: some layers do."""

from dataclasses import replace

import torch

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.windows import read_windows


def mistral(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    settings = LlamaConfig.read(config)
    return _without_biases(settings, (_window(config),) * settings.num_layers, weights, dtype)


def ministral(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    settings = LlamaConfig.read(config)
    window = _window(config)
    windows = read_windows(config, window, [window is not None] * settings.num_layers)
    return _without_biases(settings, windows, weights, dtype)


def _window(config: ConfigReader) -> int | None:
    """Where the key is missing, the architecture's own default holds; null means no window."""
    return config.optional("sliding_window", int) if "sliding_window" in config else 4096


def _without_biases(
    settings: LlamaConfig, windows: tuple[int | None, ...], weights: WeightSource, dtype: torch.dtype
) -> Llama:
    return Llama(replace(settings, has_qkv_bias=False, has_output_bias=False, windows=windows), weights, dtype)
