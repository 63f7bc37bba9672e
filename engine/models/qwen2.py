"""Qwen2 and Qwen2.5: Llama, but queries, keys and values have biases."""

from dataclasses import replace

import torch

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.mistral import refuse_short_window


def qwen2(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    settings = replace(LlamaConfig.read(config), has_qkv_bias=True, has_output_bias=False)
    if config.get("use_sliding_window", bool, False):
        refuse_short_window(config.optional("sliding_window", int), max_model_len or settings.max_positions)
    return Llama(settings, weights, dtype)
