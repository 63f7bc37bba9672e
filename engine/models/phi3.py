"""Phi-3 and Phi-4: Llama, but q, k and v are one tensor, gate and up another; some versions rotate a part of each head
only, some read a window."""

from dataclasses import replace

import torch

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig


def phi3(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    settings = LlamaConfig.read(config)
    windows = (config.optional("sliding_window", int),) * settings.num_layers
    settings = replace(settings, windows=windows, has_fused_weights=True, has_qkv_bias=False, has_output_bias=False)
    return Llama(settings, weights, dtype)
