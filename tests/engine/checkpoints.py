"""Tiny random checkpoints of every architecture, written by transformers, which is also the reference for results."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 311
CONTEXT = 256

#: Shorter than the prompts of the tests by a factor, and no multiple of their page sizes.
WINDOW = 11

_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "eos_token_id": None,
    # Large enough that logits differ clearly and greedy choices do not depend on rounding.
    "initializer_range": 0.2,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

#: The blend of frequencies lies between two channels; the original context ends inside of the prompts.
_YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 8.0,
    "beta_fast": 4.0,
    "original_max_position_embeddings": 32,
}

#: Layers 1 and 3 have no positions, and read more than a chunk.
_LLAMA4 = {
    **_SIZES,
    "num_hidden_layers": 4,
    "intermediate_size_mlp": 64,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
    "no_rope_layer_interval": 2,
    "attention_chunk_size": WINDOW,
    "floor_scale": 16,
    "attn_scale": 0.5,
}

_GEMMA = {
    **_SIZES,
    "head_dim": 16,
    "sliding_window": WINDOW,
    "query_pre_attn_scalar": 24,
}

_DELTA_NET = {
    **_SIZES,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
_DELTA_NET_EXPERTS = {
    **_DELTA_NET,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "num_experts": 5,
    "num_experts_per_tok": 4,
}
_SECTIONED_ROPE = {
    "rope_type": "default",
    "rope_theta": 1000.0,
    "partial_rotary_factor": 0.5,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
_QWEN_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "depth": 1,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": 48,
    "num_position_embeddings": 16,
}
_MAMBA2 = {"mamba_n_heads": 4, "mamba_d_state": 5}
_GRANITE = {
    **_MAMBA2,
    "shared_intermediate_size": 40,
    "embedding_multiplier": 1.5,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.7,
    "attention_multiplier": 0.3,
}

_GEMMA4 = {
    **_SIZES,
    "num_hidden_layers": 6,
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "sliding", "full", "sliding", "sliding", "full")],
    "sliding_window": WINDOW,
    "global_head_dim": 32,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "final_logit_softcapping": 2.0,
}

_LATENT = {
    **{name: value for name, value in _SIZES.items() if name != "head_dim"},
    "num_key_value_heads": 6,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 16,
    "v_head_dim": 20,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_group": 3,
    "topk_group": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "routed_scaling_factor": 1.5,
}

_FALCON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "ffn_hidden_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
    "eos_token_id": None,
}

#: name -> (registered architecture, which is also the class of transformers; settings of its config). Every registered
#: architecture has one variant or more: tests/engine/models and tests/engine/parallel run over all of them.
VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {**_SIZES}),
    "llama-without-groups": ("LlamaForCausalLM", {**_SIZES, "num_key_value_heads": 6, "head_dim": 8}),
    "llama-with-biases": ("LlamaForCausalLM", {**_SIZES, "attention_bias": True, "mlp_bias": True, "head_dim": 32}),
    "llama-tied": ("LlamaForCausalLM", {**_SIZES, "tie_word_embeddings": True}),
    "llama-3-rope": ("LlamaForCausalLM", {**_SIZES, "rope_parameters": _LLAMA3_ROPE}),
    "llama-linear-rope": ("LlamaForCausalLM", {**_SIZES, "rope_parameters": _LINEAR_ROPE}),
    "mistral": ("MistralForCausalLM", {**_SIZES, "sliding_window": None}),
    "mistral-window": ("MistralForCausalLM", {**_SIZES, "sliding_window": WINDOW}),
    "ministral": (
        "MinistralForCausalLM",
        {
            **_SIZES,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen2": ("Qwen2ForCausalLM", {**_SIZES}),
    "qwen2-window": (
        "Qwen2ForCausalLM",
        {**_SIZES, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3ForCausalLM", {**_SIZES, "head_dim": 32}),
    "qwen3-window": (
        "Qwen3ForCausalLM",
        {
            **_SIZES,
            "head_dim": 32,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gemma2": ("Gemma2ForCausalLM", {**_GEMMA, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}),
    "gemma3": (
        "Gemma3ForCausalLM",
        {
            **_GEMMA,
            "num_hidden_layers": 7,
            "rope_parameters": {"full_attention": _LINEAR_ROPE, "sliding_attention": {"rope_type": "default"}},
        },
    ),
    "gemma3-with-vision": (
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {**_GEMMA, "_sliding_window_pattern": 2},
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
            "mm_tokens_per_image": 4,
            "image_token_index": 310,
            "boi_token_index": 309,
            "eoi_token_index": 308,
        },
    ),
    # Ids of the last 11 tokens have no embedding of their own for the layers' inputs.
    "gemma3n": (
        "Gemma3nForCausalLM",
        {
            **_SIZES,
            "num_hidden_layers": 5,
            "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full")],
            "sliding_window": WINDOW,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCAB_SIZE - 11,
            "intermediate_size": [80, 64, 80, 80, 48],
            "activation_sparsity_pattern": [0.8, 0.0, 0.5, 0.0, 0.0],
            "altup_num_inputs": 3,
            "altup_active_idx": 1,
            "laurel_rank": 12,
            "final_logit_softcapping": 2.0,
        },
    ),
    "gemma4": ("Gemma4ForCausalLM", _GEMMA4),
    "gemma4-with-experts": (
        "Gemma4ForConditionalGeneration",
        {
            "text_config": {
                **_GEMMA4,
                "num_hidden_layers": 3,
                "layer_types": ["sliding_attention", "full_attention", "full_attention"],
                "num_kv_shared_layers": 0,
                "hidden_size_per_layer_input": 0,
                "attention_k_eq_v": True,
                "num_global_key_value_heads": 1,
                "enable_moe_block": True,
                "num_experts": 5,
                "top_k_experts": 2,
                "moe_intermediate_size": 24,
            },
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "position_embedding_size": 64,
                "patch_size": 4,
            },
            "audio_config": None,
            # Of no token: transformers puts other embeddings in the place of these.
            "image_token_id": VOCAB_SIZE,
            "video_token_id": VOCAB_SIZE + 1,
            "audio_token_id": VOCAB_SIZE + 2,
            "boi_token_id": 307,
            "eoi_token_id": 306,
        },
    ),
    "deepseek-v2": (
        "DeepseekV2ForCausalLM",
        {**_LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy", "first_k_dense_replace": 1},
    ),
    "deepseek-v3-yarn": (
        "DeepseekV3ForCausalLM",
        {
            **_LATENT,
            "q_lora_rank": 24,
            "attention_bias": True,
            "first_k_dense_replace": 1,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 100.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "mscale": 1.0,
                "mscale_all_dim": 0.7,
            },
        },
    ),
    "glm4-moe-lite": (
        "Glm4MoeLiteForCausalLM",
        {**_LATENT, "n_group": 1, "topk_group": 1, "mlp_layer_types": ["sparse", "dense", "sparse"]},
    ),
    "phi3": ("Phi3ForCausalLM", {**_SIZES, "pad_token_id": None}),
    # transformers chooses by the length of a sequence: it takes the long factors of all but the first position, which
    # is not rotated.
    "phi3-longrope": (
        "Phi3ForCausalLM",
        {
            **_SIZES,
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
            **_SIZES,
            "pad_token_id": None,
            "sliding_window": WINDOW,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "olmo2": ("Olmo2ForCausalLM", {**_SIZES}),
    "olmo2-with-biases": ("Olmo2ForCausalLM", {**_SIZES, "attention_bias": True, "num_key_value_heads": 6}),
    "mixtral": ("MixtralForCausalLM", {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM",
        {
            **_SIZES,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "decoder_sparse_step": 2,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
        },
    ),
    "qwen3-moe": (
        "Qwen3MoeForCausalLM",
        {
            **_SIZES,
            "head_dim": 16,
            "moe_intermediate_size": 24,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3-next": ("Qwen3NextForCausalLM", {**_DELTA_NET_EXPERTS, "mlp_only_layers": [1]}),
    "qwen3.5": ("Qwen3_5ForCausalLM", {**_DELTA_NET, "rope_parameters": _SECTIONED_ROPE, "linear_conv_kernel_dim": 3}),
    "qwen3.5-moe": ("Qwen3_5MoeForCausalLM", {**_DELTA_NET_EXPERTS}),
    "qwen3.5-with-vision": (
        "Qwen3_5ForConditionalGeneration",
        {
            "text_config": {**_DELTA_NET, "tie_word_embeddings": True},
            "vision_config": _QWEN_VISION,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3.5-moe-with-vision": (
        "Qwen3_5MoeForConditionalGeneration",
        {"text_config": _DELTA_NET_EXPERTS, "vision_config": _QWEN_VISION},
    ),
    "gpt-neox": ("GPTNeoXForCausalLM", {**_SIZES, "hidden_size": 64, "num_attention_heads": 4}),
    "gpt-neox-in-sequence": (
        "GPTNeoXForCausalLM",
        {
            **_SIZES,
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
    "mamba": (
        "MambaForCausalLM",
        {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 48,
            "state_size": 5,
            "num_hidden_layers": 3,
            "initializer_range": 0.3,
            "max_position_embeddings": CONTEXT,
            "eos_token_id": None,
        },
    ),
    "jamba": (
        "JambaForCausalLM",
        {
            **_SIZES,
            "pad_token_id": None,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "num_hidden_layers": 4,
            "num_experts": 3,
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "mamba_d_state": 5,
        },
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 48,
            "num_heads": 6,
            "head_dim": 16,
            "n_groups": 2,
            "state_size": 5,
            "num_hidden_layers": 3,
            "initializer_range": 0.3,
            "max_position_embeddings": CONTEXT,
            "eos_token_id": None,
        },
    ),
    "falcon-mamba": (
        "FalconMambaForCausalLM",
        {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 48,
            "state_size": 5,
            "num_hidden_layers": 2,
            "initializer_range": 0.3,
            "max_position_embeddings": CONTEXT,
            "eos_token_id": None,
        },
    ),
    "bamba": (
        "BambaForCausalLM",
        {**_SIZES, "pad_token_id": None, "attn_layer_indices": [1], **_MAMBA2, "mamba_n_groups": 2},
    ),
    "falcon-h1": (
        "FalconH1ForCausalLM",
        {
            **_SIZES,
            "num_hidden_layers": 2,
            "pad_token_id": None,
            **_MAMBA2,
            "mamba_d_ssm": 64,
            "mamba_d_head": 16,
            "mamba_norm_before_gate": False,
            "mamba_rms_norm": True,
            "lm_head_multiplier": 0.7,
            "embedding_multiplier": 1.4,
            "mlp_multipliers": [0.8, 1.3],
            "key_multiplier": 0.6,
            "attention_out_multiplier": 0.9,
            "attention_in_multiplier": 1.2,
            "ssm_multipliers": [0.7, 1.2, 0.9, 1.1, 1.3],
            "ssm_in_multiplier": 1.3,
            "ssm_out_multiplier": 0.8,
        },
    ),
    "falcon-h1-without-norm": (
        "FalconH1ForCausalLM",
        {**_SIZES, "num_hidden_layers": 2, "pad_token_id": None, **_MAMBA2, "mamba_d_ssm": None},
    ),
    "granite-hybrid": (
        "GraniteMoeHybridForCausalLM",
        {
            **_SIZES,
            **_GRANITE,
            "layer_types": ["mamba", "attention", "mamba"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 24,
        },
    ),
    "granite-dense": (
        "GraniteMoeHybridForCausalLM",
        {
            **_SIZES,
            **_GRANITE,
            "num_local_experts": 0,
            "layer_types": ["attention", "attention"],
            "num_hidden_layers": 2,
            "position_embedding_type": "rope",
        },
    ),
    "nemotron-h": (
        "NemotronHForCausalLM",
        {
            **{key: value for key, value in _SIZES.items() if key != "num_hidden_layers"},
            "hybrid_override_pattern": "M-*M",
            "pad_token_id": None,
            "mamba_num_heads": 6,
            "mamba_head_dim": 8,
            "ssm_state_size": 5,
            "n_groups": 2,
            # transformers clamps steps of prompts, but not of single tokens, from below
            "time_step_min": 1e-9,
        },
    ),
    # The experts have fewer channels than the stream.
    "nemotron-h-moe": (
        "NemotronHForCausalLM",
        {
            **{key: value for key, value in _SIZES.items() if key != "num_hidden_layers"},
            "hybrid_override_pattern": "ME*E",
            "pad_token_id": None,
            "mamba_num_heads": 6,
            "mamba_head_dim": 8,
            "ssm_state_size": 5,
            "n_groups": 2,
            "time_step_min": 1e-9,
            "mlp_bias": True,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 40,
            "moe_latent_size": 32,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 2.5,
        },
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        {
            **{key: value for key, value in _SIZES.items() if key != "head_dim"},
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "block_multiple_of": 8,
            "layer_types": ["conv", "full_attention", "conv"],
        },
    ),
    "lfm2-moe": (
        "Lfm2MoeForCausalLM",
        {
            **{key: value for key, value in _SIZES.items() if key != "head_dim"},
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "conv_bias": True,
            "num_dense_layers": 1,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "routed_scaling_factor": 1.7,
            "layer_types": ["conv", "full_attention", "conv"],
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
            **_SIZES,
            "head_dim": 8,
            "pad_token_id": None,
            "attention_bias": True,
            "use_qk_norm": True,
            "logit_scale": 0.5,
        },
    ),
    "cohere2": (
        "Cohere2ForCausalLM",
        {**_SIZES, "head_dim": 8, "pad_token_id": None, "sliding_window": WINDOW, "sliding_window_pattern": 2},
    ),
    "starcoder2": ("Starcoder2ForCausalLM", {**_SIZES, "head_dim": 8, "sliding_window": WINDOW}),
    "glm4": ("Glm4ForCausalLM", {**_SIZES, "pad_token_id": None, "attention_bias": True}),
    "stablelm": ("StableLmForCausalLM", {**_SIZES, "hidden_size": 96, "use_qkv_bias": True}),
    "stablelm-parallel": (
        "StableLmForCausalLM",
        {**_SIZES, "hidden_size": 96, "use_parallel_residual": True, "qk_layernorm": True},
    ),
    "phi": ("PhiForCausalLM", {**_SIZES, "head_dim": 8, "num_key_value_heads": None}),
    "falcon": ("FalconForCausalLM", {**_FALCON, "bias": True}),
    "falcon-in-sequence": (
        "FalconForCausalLM",
        {**_FALCON, "parallel_attn": False, "multi_query": False, "tie_word_embeddings": False},
    ),
    "falcon-new": ("FalconForCausalLM", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-new-with-one-norm": (
        "FalconForCausalLM",
        {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "ernie4-5": ("Ernie4_5ForCausalLM", {**_SIZES, "pad_token_id": None, "use_bias": True}),
    "ernie4-5-moe": (
        "Ernie4_5_MoeForCausalLM",
        {
            **_SIZES,
            "pad_token_id": None,
            "head_dim": 8,
            "moe_intermediate_size": 24,
            "moe_num_experts": 5,
            "moe_k": 2,
        },
    ),
    "glm4-moe": (
        "Glm4MoeForCausalLM",
        {
            **_SIZES,
            "head_dim": 8,
            "attention_bias": True,
            "use_qk_norm": True,
            "moe_intermediate_size": 24,
            "n_routed_experts": 12,
            "n_shared_experts": 2,
            "num_experts_per_tok": 3,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.5,
        },
    ),
    "hunyuan": (
        "HunYuanDenseV1ForCausalLM",
        {
            **_SIZES,
            "pad_token_id": None,
            "attention_bias": True,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 1.0, "alpha": 50.0},
        },
    ),
    "hunyuan-moe": (
        "HunYuanMoEV1ForCausalLM",
        {**_SIZES, "pad_token_id": None, "num_experts": 4, "moe_topk": [2, 1, 3]},
    ),
    "olmoe": (
        "OlmoeForCausalLM",
        {**_SIZES, "head_dim": 8, "pad_token_id": None, "num_experts": 5, "num_experts_per_tok": 2},
    ),
    "granite-moe": (
        "GraniteMoeForCausalLM",
        {
            **_SIZES,
            "num_local_experts": 4,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
    ),
    "minimax-m2": (
        "MiniMaxM2ForCausalLM",
        {**_SIZES, "num_local_experts": 5, "num_experts_per_tok": 2, "rotary_dim": 8},
    ),
    # transformers takes the short factors for all lengths, so the original context is the whole one.
    "phimoe": (
        "PhimoeForCausalLM",
        {
            **_SIZES,
            "head_dim": 8,
            "num_local_experts": 4,
            "router_jitter_noise": 0.2,
            "attention_bias": True,
            "lm_head_bias": True,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1000.0,
                "short_factor": [1.0, 1.5, 2.0, 6.0],
                "long_factor": [9.0, 9.0, 9.0, 9.0],
                "short_mscale": 1.2,
                "long_mscale": 1.2,
                "original_max_position_embeddings": CONTEXT,
            },
        },
    ),
    "gemma": ("GemmaForCausalLM", {**_SIZES, "pad_token_id": None}),
    "gpt-oss": (
        "GptOssForCausalLM",
        {
            **_SIZES,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "swiglu_limit": 1.5,
            "rope_parameters": {**_YARN_ROPE, "truncate": False},
        },
    ),
    "llama4": ("Llama4ForCausalLM", {**_LLAMA4, "interleave_moe_layer_step": 2, "attention_bias": True}),
    "llama4-with-vision": (
        "Llama4ForConditionalGeneration",
        {
            "text_config": {
                **_LLAMA4,
                "use_qk_norm": False,
                "rope_parameters": {**_LLAMA3_ROPE, "high_freq_factor": 1.0},
            },
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
                "vision_output_dim": 16,
                "projector_input_dim": 16,
                "projector_output_dim": 16,
            },
        },
    ),
    "ministral3": (
        "Ministral3ForCausalLM",
        {
            **_SIZES,
            "pad_token_id": None,
            "sliding_window": 40,
            "rope_parameters": {
                **_YARN_ROPE,
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
                **_SIZES,
                "model_type": "ministral3",
                "pad_token_id": None,
                "rope_parameters": {**_YARN_ROPE, "llama_4_scaling_beta": 0.1},
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
            **_SIZES,
            "num_hidden_layers": 4,
            "sliding_window": WINDOW,
            "pad_token_id": None,
            "rope_parameters": {
                "full_attention": {**_YARN_ROPE, "attention_factor": 1.3},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
        },
    ),
    "smollm3": (
        "SmolLM3ForCausalLM",
        {
            **_SIZES,
            "pad_token_id": None,
            "no_rope_layer_interval": 2,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "rope_parameters": {**_YARN_ROPE, "truncate": False},
            "tie_word_embeddings": False,
        },
    ),
    "exaone4": (
        "Exaone4ForCausalLM",
        {**_SIZES, "sliding_window": WINDOW, "sliding_window_pattern": 3},
    ),
    "granite": (
        "GraniteForCausalLM",
        {
            **_SIZES,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.6,
            "logits_scaling": 2.0,
            "rms_norm_eps": 0.01,
        },
    ),
}


@dataclass(frozen=True)
class TinyModel:
    """A saved checkpoint, and its results in transformers."""

    folder: Path

    @cached_property
    def reference(self) -> Any:
        """The same checkpoint in transformers, float32; of a wrapper the causal language model inside it. Eager
        attention: the faster forms ignore soft caps."""
        import transformers

        (architecture,) = json.loads((self.folder / "config.json").read_text())["architectures"]
        model_class: Any = getattr(transformers, architecture)
        model = model_class.from_pretrained(self.folder, dtype=torch.float32, attn_implementation="eager")
        inner = getattr(model, "language_model", None)
        return (model if inner is None or inner.get_output_embeddings() is None else inner).eval()

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """The greedy continuation by transformers."""
        ids = torch.tensor([prompt])
        output = self.reference.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_tokens, do_sample=False, pad_token_id=0
        )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens

    @torch.no_grad()
    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """Logits of every token by transformers, [T, V]."""
        result: torch.Tensor = self.reference(torch.tensor([token_ids])).logits[0]
        return result


def save(name: str, folder: Path, **changes: object) -> TinyModel:
    """Write a checkpoint of a variant: seeded weights, norm scales other than one, biases other than zero.

    changes: settings of its config to replace.
    """
    import transformers

    architecture, settings = VARIANTS[name]
    model_class = getattr(transformers, architecture)
    config = model_class.config_class(**{**settings, **changes})
    torch.manual_seed(20)
    model = model_class(config)
    for tensor_name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
        elif architecture == "GPT2LMHeadModel":
            parameter.data *= 8.0
        # As drawn, heads of a delta net forget within a token; what they read is then often near zero, where their norm
        # enlarges roundings.
        if tensor_name.endswith("linear_attn.A_log"):
            parameter.data -= 4.0
        if architecture.startswith(("Gemma3n", "Gemma4")) and tensor_name.endswith("q_norm.weight"):
            parameter.data *= 0.3  # scores have no other factor
        # With scaled, tied embeddings as large as other weights every token would predict itself. The last norm makes
        # up for the smaller logits.
        if architecture.startswith("Gemma") and "embed_tokens" in tensor_name:
            parameter.data *= 0.05
        elif architecture.startswith("Gemma") and tensor_name in (
            "model.norm.weight",
            "model.language_model.norm.weight",
        ):
            parameter.data += 15.0
    for tensor_name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor_name.endswith(("e_score_correction_bias", "expert_bias")):
            tensor.data += 0.2 * torch.randn_like(tensor)
        elif tensor_name.endswith("layer_scalar"):
            tensor.data.fill_(0.75)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return TinyModel(folder)


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer.json without merges and special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


TinyModels = Callable[[str], TinyModel]
