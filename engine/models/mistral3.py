"""Mistral 3: the text model of checkpoints with a vision tower. It is Mistral (Mistral Small 3.1) or Ministral 3."""

import re
from dataclasses import replace

from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.layers.weights import WeightSource, text_model_of
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama
from engine.models.ministral3 import read_ministral3
from engine.models.mistral import read_mistral

#: The vision tower with its projector.
MISTRAL3_VISION = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..*")


def mistral3(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds the text model. Whether its head is tied is said by the tensors: configs say it in several places, and
    differently."""
    text = config.section("text_config")
    if text is None:
        raise CheckpointError("config.json has no text_config")
    match text.get("model_type", str, "mistral"):
        case "mistral":
            settings = read_mistral(text)
        case "ministral3":
            settings = read_ministral3(text)
        case kind:
            raise CheckpointError(f"config.json: text_config of model_type {quoted(kind)} is not supported")
    weights = text_model_of(weights)
    return Llama(replace(settings, is_tied="lm_head.weight" not in weights), weights)
