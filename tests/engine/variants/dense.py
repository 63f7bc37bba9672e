"""Variants whose layers are attention and one MLP."""

from collections.abc import Mapping
from typing import Any

from tests.engine.variants.sizes import CONTEXT, FALCON, LINEAR_ROPE, LLAMA3_ROPE, SIZES, VOCAB_SIZE, WINDOW, YARN_ROPE

DENSE: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {**SIZES}),
    "llama-without-groups": ("LlamaForCausalLM", {**SIZES, "num_key_value_heads": 6, "head_dim": 8}),
    "llama-with-biases": ("LlamaForCausalLM", {**SIZES, "attention_bias": True, "mlp_bias": True, "head_dim": 32}),
    "llama-tied": ("LlamaForCausalLM", {**SIZES, "tie_word_embeddings": True}),
    "llama-3-rope": ("LlamaForCausalLM", {**SIZES, "rope_parameters": LLAMA3_ROPE}),
    "llama-linear-rope": ("LlamaForCausalLM", {**SIZES, "rope_parameters": LINEAR_ROPE}),
    "mistral": ("MistralForCausalLM", {**SIZES, "sliding_window": None}),
    "mistral-window": ("MistralForCausalLM", {**SIZES, "sliding_window": WINDOW}),
    "ministral": (
        "MinistralForCausalLM",
        {
            **SIZES,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen2": ("Qwen2ForCausalLM", {**SIZES}),
    "qwen2-window": (
        "Qwen2ForCausalLM",
        {**SIZES, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3ForCausalLM", {**SIZES, "head_dim": 32}),
    "qwen3-window": (
        "Qwen3ForCausalLM",
        {
            **SIZES,
            "head_dim": 32,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "phi3": ("Phi3ForCausalLM", {**SIZES, "pad_token_id": None}),
    # transformers chooses by the length of a sequence: it takes the long factors of all but the first position, which
    # is not rotated.
    "phi3-longrope": (
        "Phi3ForCausalLM",
        {
            **SIZES,
            "head_dim": 8,
            "pad_token_id": None,
            "original_max_position_embeddings": 1,
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [9.0, 9.0, 9.0],
                "long_factor": [1.0, 1.5, 6.0],
                "attention_factor": 1.2,
                "partial_rotary_factor": 0.75,
            },
        },
    ),
    "phi3-partly-rotated-window": (
        "Phi3ForCausalLM",
        {
            **SIZES,
            "pad_token_id": None,
            "sliding_window": WINDOW,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "olmo2": ("Olmo2ForCausalLM", {**SIZES}),
    "olmo2-with-biases": ("Olmo2ForCausalLM", {**SIZES, "attention_bias": True, "num_key_value_heads": 6}),
    "gpt-neox": ("GPTNeoXForCausalLM", {**SIZES, "hidden_size": 64, "num_attention_heads": 4}),
    "gpt-neox-in-sequence": (
        "GPTNeoXForCausalLM",
        {
            **SIZES,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "use_parallel_residual": False,
            "tie_word_embeddings": True,
        },
    ),
    "opt": (
        "OPTForCausalLM",
        {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 48,
            "ffn_dim": 80,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": CONTEXT,
            "init_std": 0.2,
            "eos_token_id": None,
        },
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCAB_SIZE,
            "n_positions": CONTEXT,
            "n_embd": 48,
            "n_layer": 3,
            "n_head": 4,
            "eos_token_id": None,
        },
    ),
    "cohere": (
        "CohereForCausalLM",
        {
            **SIZES,
            "head_dim": 8,
            "pad_token_id": None,
            "attention_bias": True,
            "use_qk_norm": True,
            "logit_scale": 0.5,
        },
    ),
    "cohere2": (
        "Cohere2ForCausalLM",
        {**SIZES, "head_dim": 8, "pad_token_id": None, "sliding_window": WINDOW, "sliding_window_pattern": 2},
    ),
    "starcoder2": ("Starcoder2ForCausalLM", {**SIZES, "head_dim": 8, "sliding_window": WINDOW}),
    "glm4": ("Glm4ForCausalLM", {**SIZES, "pad_token_id": None, "attention_bias": True}),
    "stablelm": ("StableLmForCausalLM", {**SIZES, "hidden_size": 96, "use_qkv_bias": True}),
    "stablelm-parallel": (
        "StableLmForCausalLM",
        {**SIZES, "hidden_size": 96, "use_parallel_residual": True, "qk_layernorm": True},
    ),
    "phi": ("PhiForCausalLM", {**SIZES, "head_dim": 8, "num_key_value_heads": None}),
    "falcon": ("FalconForCausalLM", {**FALCON, "bias": True}),
    "falcon-in-sequence": (
        "FalconForCausalLM",
        {**FALCON, "parallel_attn": False, "multi_query": False, "tie_word_embeddings": False},
    ),
    "falcon-new": ("FalconForCausalLM", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-new-with-one-norm": (
        "FalconForCausalLM",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "ernie4-5": ("Ernie4_5ForCausalLM", {**SIZES, "pad_token_id": None, "use_bias": True}),
    "hunyuan": (
        "HunYuanDenseV1ForCausalLM",
        {
            **SIZES,
            "pad_token_id": None,
            "attention_bias": True,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 1.0, "alpha": 50.0},
        },
    ),
    "ministral3": (
        "Ministral3ForCausalLM",
        {
            **SIZES,
            "pad_token_id": None,
            "sliding_window": 40,
            "rope_parameters": {
                **YARN_ROPE,
                "mscale": 0.5,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 16,
                "llama_4_scaling_beta": 0.5,
            },
        },
    ),
    "mistral3": (
        "Mistral3ForConditionalGeneration",
        {
            "text_config": {
                **SIZES,
                "model_type": "ministral3",
                "pad_token_id": None,
                "rope_parameters": {**YARN_ROPE, "llama_4_scaling_beta": 0.1},
            },
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "head_dim": 8,
                "image_size": 28,
                "patch_size": 14,
            },
            "tie_word_embeddings": False,
        },
    ),
    "olmo3": (
        "Olmo3ForCausalLM",
        {
            **SIZES,
            "num_hidden_layers": 4,
            "sliding_window": WINDOW,
            "pad_token_id": None,
            "rope_parameters": {
                "full_attention": {**YARN_ROPE, "attention_factor": 1.3},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
        },
    ),
    "smollm3": (
        "SmolLM3ForCausalLM",
        {
            **SIZES,
            "pad_token_id": None,
            "no_rope_layer_interval": 2,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "rope_parameters": {**YARN_ROPE, "truncate": False},
            "tie_word_embeddings": False,
        },
    ),
    "exaone4": (
        "Exaone4ForCausalLM",
        {**SIZES, "sliding_window": WINDOW, "sliding_window_pattern": 3},
    ),
    "granite": (
        "GraniteForCausalLM",
        {
            **SIZES,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.6,
            "logits_scaling": 2.0,
            "rms_norm_eps": 0.01,
        },
    ),
}
