"""Gemma 3 for text: Gemma 2, but with norms of query and key heads, without soft caps, with a window in five layers of
six, and with another RoPE base in those. From checkpoints with a vision tower only the text model is served."""

import re

from engine.errors import CheckpointError
from engine.layers.weights import WeightSource, text_model_of
from engine.models.config_reader import ConfigReader
from engine.models.gemma2 import Gemma, read_gemma
from engine.models.rope import read_ropes

#: The vision tower with its projector, and a copy of the tied output head.
VISION_TENSORS = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..*|language_model\.lm_head\.weight")

_BASE = 1_000_000.0
_WINDOW_BASE = 10_000.0


def gemma3(config: ConfigReader, weights: WeightSource) -> Gemma:
    """Builds the text model; its config may be a whole config.json or a text_config."""
    num_layers = config.require("num_hidden_layers", int)
    period = config.get("sliding_window_pattern", int, 6)
    rope, window_rope = read_ropes(config, default_base=_BASE, default_window_base=_WINDOW_BASE)
    settings = read_gemma(
        config,
        window_rule=[(index + 1) % period != 0 for index in range(num_layers)],
        rope=rope,
        window_rope=window_rope,
        default_context=131_072,
        default_vocab=262_208,
        has_head_norm=True,
    )
    return Gemma(settings, weights)


def gemma3_with_vision(config: ConfigReader, weights: WeightSource) -> Gemma:
    """Builds the text model of a checkpoint with a vision tower: the same, one level deeper in config and names."""
    text = config.section("text_config")
    if text is None:
        raise CheckpointError("config.json has no text_config")
    return gemma3(text, text_model_of(weights))
