"""Mistral: Llama, but with a sliding window that must not be shorter than the context we serve."""

from dataclasses import replace

import torch

from engine.errors import CheckpointError
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig


def mistral(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    settings = replace(LlamaConfig.read(config), has_qkv_bias=False, has_output_bias=False)
    # Where the key is missing, the architecture's own default holds; null means no window.
    window = config.optional("sliding_window", int) if "sliding_window" in config else 4096
    refuse_short_window(window, max_model_len or settings.max_positions)
    return Llama(settings, weights, dtype)


def refuse_short_window(window: int | None, context: int) -> None:
    if window is not None and window < context:
        raise CheckpointError(
            f"config.json: a sliding window of {window} tokens is shorter than the context of {context}; "
            f"windows are not supported yet, a max_model_len of at most {window} works"
        )
