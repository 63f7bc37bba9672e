"""Qwen3: Llama, but with an RMS norm of every query and key head before the rotation; windows as in Qwen2."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.qwen2 import qwen_windows


def qwen3(config: ConfigReader, weights: WeightSource) -> Llama:
    """Head norms in all layers."""
    settings = replace(LlamaConfig.read(config), has_head_norm=True)
    return Llama(replace(settings, windows=qwen_windows(config, settings.num_layers)), weights)
