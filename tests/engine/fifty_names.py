"""The architectures that people run most (the names of 2026), and by which way Agon runs each, or why not.

A name with code of its own has checkpoints in tests/engine/checkpoints.py. The config of any other is made here, tiny.
"""

import json
from collections.abc import Mapping
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
_EXPERTS = {
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 6,
    "head_dim": 8,
}

#: Settings of a tiny config beside those of GROUPED, for names that need them; None: transformers' own config, for
#: architectures whose layers do not fit the common sizes.
_SETTINGS: Mapping[str, dict[str, Any] | None] = {
    "Mistral3ForConditionalGeneration": None,
    "Qwen3_5ForCausalLM": None,
    "Qwen3_5MoeForCausalLM": None,
    "Qwen3_5ForConditionalGeneration": None,
    "Gemma3nForCausalLM": {
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "activation_sparsity_pattern": [0.0] * 3,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 311,
        "laurel_rank": 8,
    },
    "Gemma4ForCausalLM": {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "global_head_dim": 16},
    "Gemma4ForConditionalGeneration": None,
    "GptOssForCausalLM": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "rope_parameters": None,
    },
    "FalconForCausalLM": None,
    "FalconH1ForCausalLM": None,
    "Mamba2ForCausalLM": None,
    "BambaForCausalLM": None,
    "GraniteMoeHybridForCausalLM": None,
    "NemotronHForCausalLM": None,
    "OlmoeForCausalLM": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2},
    "PhimoeForCausalLM": {"num_local_experts": 4},
    "StableLmForCausalLM": {"head_dim": 8},
    "Glm4MoeForCausalLM": _EXPERTS,
    "DeepseekV2ForCausalLM": {**_EXPERTS, **_LATENT},
    "DeepseekV3ForCausalLM": {**_EXPERTS, **_LATENT},
    "Llama4ForConditionalGeneration": None,
    "MiniMaxM2ForCausalLM": {"num_local_experts": 4, "num_experts_per_tok": 2},
}


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

    config_class = getattr(transformers, name).config_class
    settings = _SETTINGS.get(name, {})
    return config_class() if settings is None else config_class(**{**GROUPED, **settings})


def save_name(name: str, folder: Path) -> TinyModel:
    """Write a tiny checkpoint of a name that transformers' code runs."""
    import transformers

    model_class, config = getattr(transformers, name), tiny_config(name)
    assert config.hidden_size <= GROUPED["hidden_size"], "the config has no tiny sizes"
    return save_randomised(model_class, config, folder)
