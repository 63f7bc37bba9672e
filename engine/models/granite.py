"""Granite 3: Llama with factors on embeddings, on attention scores, on what each part adds to the residual stream, and
on logits.

The stream is kept divided by the factor of the parts, so that they are added as they are: a norm does not change with
the scale of its input if its epsilon is divided by the square. The factor goes into the embeddings instead.
"""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig


def granite(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Granite 3, dense."""
    return Llama(read_granite(config), weights)


def read_granite(config: ConfigReader) -> LlamaConfig:
    """The settings that the dense models and the mixtures of experts share."""
    settings = LlamaConfig.read(config)
    factor = config.get("residual_multiplier", float, 1.0)
    return replace(
        settings,
        shape=replace(settings.shape, score_scale=config.get("attention_multiplier", float, 1.0)),
        norm_eps=settings.norm_eps / factor**2,
        embedding_scale=config.get("embedding_multiplier", float, 1.0) / factor,
        logit_scale=1.0 / config.get("logits_scaling", float, 1.0),
    )
