"""Mistral: Llama, but every layer reads a sliding window, unless the checkpoint has none."""

from dataclasses import replace

import torch

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig


def mistral(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    settings = LlamaConfig.read(config)
    # Where the key is missing, the architecture's own default holds; null means no window.
    window = config.optional("sliding_window", int) if "sliding_window" in config else 4096
    windows = (window,) * settings.num_layers
    return Llama(replace(settings, has_qkv_bias=False, has_output_bias=False, windows=windows), weights, dtype)
