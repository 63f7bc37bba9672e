"""The architectures that people run most (the names of 2026), and by which way Agon runs each, or why not.

A name with code of its own has checkpoints in tests/engine/checkpoints.py. The config of any other is made here, tiny.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError
from engine.layers.weights import ShapesOnly
from engine.models.config_reader import ConfigReader
from engine.models.registry import ARCHITECTURES, architecture_of
from tests.engine.checkpoints import TinyModel
from tests.engine.transformers_checkpoints import GROUPED, save_randomised

NAMES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "MinistralForCausalLM",
    "Ministral3ForCausalLM",
    "Mistral3ForConditionalGeneration",
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "GemmaForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "Gemma3nForCausalLM",
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
    "GptOssForCausalLM",
    "PhiForCausalLM",
    "Phi3ForCausalLM",
    "PhimoeForCausalLM",
    "GPT2LMHeadModel",
    "GPTNeoXForCausalLM",
    "OPTForCausalLM",
    "BloomForCausalLM",
    "FalconForCausalLM",
    "FalconH1ForCausalLM",
    "FalconMambaForCausalLM",
    "MambaForCausalLM",
    "Mamba2ForCausalLM",
    "JambaForCausalLM",
    "BambaForCausalLM",
    "GraniteForCausalLM",
    "GraniteMoeHybridForCausalLM",
    "NemotronHForCausalLM",
    "Lfm2ForCausalLM",
    "Olmo2ForCausalLM",
    "Olmo3ForCausalLM",
    "OlmoeForCausalLM",
    "SmolLM3ForCausalLM",
    "CohereForCausalLM",
    "Cohere2ForCausalLM",
    "Starcoder2ForCausalLM",
    "StableLmForCausalLM",
    "Glm4ForCausalLM",
    "Glm4MoeForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Llama4ForConditionalGeneration",
    "Exaone4ForCausalLM",
    "Ernie4_5ForCausalLM",
    "HunYuanDenseV1ForCausalLM",
    "MiniMaxM2ForCausalLM",
)


@cache
def way_of(name: str) -> str:
    """ "agon": code of its own; "transformers": transformers' code; anything else is the reason why it is refused."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name].code
    reader = ConfigReader({**json.loads(tiny_config(name).to_json_string()), "architectures": [name]})
    try:
        architecture = architecture_of(reader)
        architecture.build(reader, ShapesOnly())
    except CheckpointError as error:
        return str(error)
    return architecture.code


def tiny_config(name: str) -> Any:
    """transformers' config, for a name without code of its own."""
    import transformers

    return getattr(transformers, name).config_class(**GROUPED)


def save_name(name: str, folder: Path) -> TinyModel:
    """Write a tiny checkpoint of a name that transformers' code runs."""
    import transformers

    model_class, config = getattr(transformers, name), tiny_config(name)
    assert config.hidden_size <= GROUPED["hidden_size"], "the config has no tiny sizes"
    return save_randomised(model_class, config, folder)
