"""Values of keys that config.json leaves out, by architecture: those of its class in transformers, where they are not
what the model's code takes for a key that is left out. tests/engine/models/test_left_out_keys.py leaves out every
key."""

from collections.abc import Mapping
from typing import Any

CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "DeepseekV2ForCausalLM": {"q_lora_rank": 1536},
    "DeepseekV3ForCausalLM": {
        "num_key_value_heads": 128,
        "n_group": 8,
        "n_shared_experts": 1,
        "q_lora_rank": 1536,
        "routed_scaling_factor": 2.5,
        "topk_group": 4,
    },
    "Ernie4_5ForCausalLM": {"num_key_value_heads": 2, "head_dim": 128},
    "Ernie4_5_MoeForCausalLM": {"num_key_value_heads": 4},
    "Exaone4ForCausalLM": {"num_key_value_heads": 32},
    "GemmaForCausalLM": {"num_key_value_heads": 16, "head_dim": 256},
    "Glm4ForCausalLM": {"num_key_value_heads": 2, "head_dim": 128},
    "Glm4MoeForCausalLM": {"num_key_value_heads": 8, "n_shared_experts": 1},
    "Glm4MoeLiteForCausalLM": {
        "num_key_value_heads": 20,
        "max_position_embeddings": 202752,
        "n_shared_experts": 1,
        "q_lora_rank": 768,
        "rms_norm_eps": 1e-05,
        "routed_scaling_factor": 1.8,
    },
    "GptOssForCausalLM": {"num_key_value_heads": 8, "head_dim": 64},
    "JambaForCausalLM": {"num_key_value_heads": 8},
    "KimiLinearForCausalLM": {"routed_scaling_factor": 2.446},
    "Lfm2ForCausalLM": {"num_key_value_heads": 8},
    "Lfm2MoeForCausalLM": {"num_key_value_heads": 8},
    "Llama4ForCausalLM": {"num_key_value_heads": 8, "head_dim": 128},
    "Llama4ForConditionalGeneration": {"num_key_value_heads": 8, "head_dim": 128},
    "MiniMaxM2ForCausalLM": {"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 196608},
    "Ministral3ForCausalLM": {"num_key_value_heads": 8, "head_dim": 128},
    "MinistralForCausalLM": {"num_key_value_heads": 8, "max_position_embeddings": 131072},
    "Mistral3ForConditionalGeneration": {"num_key_value_heads": 8, "head_dim": 128},
    "MistralForCausalLM": {"num_key_value_heads": 8, "max_position_embeddings": 131072},
    "MixtralForCausalLM": {"num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05},
    "Phi3ForCausalLM": {"max_position_embeddings": 4096, "rms_norm_eps": 1e-05},
    "PhimoeForCausalLM": {"num_key_value_heads": 8},
    "Qwen2ForCausalLM": {"num_key_value_heads": 32, "max_position_embeddings": 32768},
    "Qwen2MoeForCausalLM": {"num_key_value_heads": 16, "max_position_embeddings": 32768},
    "Qwen3ForCausalLM": {"num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768},
    "Qwen3MoeForCausalLM": {"num_key_value_heads": 4, "max_position_embeddings": 32768},
    "Qwen3_5ForCausalLM": {"num_key_value_heads": 4, "intermediate_size": 12288},
    "Qwen3_5ForConditionalGeneration": {"num_key_value_heads": 4, "intermediate_size": 12288},
    "SmolLM3ForCausalLM": {"num_key_value_heads": 4},
    "StableLmForCausalLM": {"num_key_value_heads": 32},
    "Starcoder2ForCausalLM": {"num_key_value_heads": 2},
}
