"""Qwen2 and Qwen2.5: Llama, but queries, keys and values have biases, and the upper layers may read a window."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.windows import read_windows


def qwen2(config: ConfigReader, weights: WeightSource) -> Llama:
    """Biases in the projections of queries, keys and values, none behind attention."""
    settings = replace(LlamaConfig.read(config), has_qkv_bias=True, has_output_bias=False)
    return Llama(replace(settings, windows=qwen_windows(config, settings.num_layers)), weights)


def qwen_windows(config: ConfigReader, num_layers: int) -> tuple[int | None, ...]:
    """Windows by layer: none unless use_sliding_window is set, else from layer max_window_layers on."""
    is_on = config.get("use_sliding_window", bool, False)
    window = config.get("sliding_window", int, 4096) if is_on else None
    first = config.get("max_window_layers", int, 28) if is_on else num_layers
    return read_windows(config, window, [index >= first for index in range(num_layers)])
