"""Qwen3: Llama, but every query and key head is normalised before the rotation; windows as in Qwen2."""

from dataclasses import replace

import torch

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.qwen2 import qwen_windows


def qwen3(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    settings = replace(LlamaConfig.read(config), has_head_norm=True)
    return Llama(replace(settings, windows=qwen_windows(config, settings.num_layers)), weights, dtype)
