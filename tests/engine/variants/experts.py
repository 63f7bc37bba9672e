"""Variants with mixtures of experts."""

from collections.abc import Mapping
from typing import Any

from tests.engine.variants.sizes import CONTEXT, LATENT, LLAMA3_ROPE, LLAMA4, SIZES, WINDOW, YARN_ROPE

EXPERTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "deepseek-v2": (
        "DeepseekV2ForCausalLM",
        {**LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy", "first_k_dense_replace": 1},
    ),
    "deepseek-v3-yarn": (
        "DeepseekV3ForCausalLM",
        {
            **LATENT,
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
        {**LATENT, "n_group": 1, "topk_group": 1, "mlp_layer_types": ["sparse", "dense", "sparse"]},
    ),
    "mixtral": ("MixtralForCausalLM", {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM",
        {
            **SIZES,
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
            **SIZES,
            "head_dim": 16,
            "moe_intermediate_size": 24,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "ernie4-5-moe": (
        "Ernie4_5_MoeForCausalLM",
        {
            **SIZES,
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
            **SIZES,
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
    "hunyuan-moe": (
        "HunYuanMoEV1ForCausalLM",
        {**SIZES, "pad_token_id": None, "num_experts": 4, "moe_topk": [2, 1, 3]},
    ),
    "olmoe": (
        "OlmoeForCausalLM",
        {**SIZES, "head_dim": 8, "pad_token_id": None, "num_experts": 5, "num_experts_per_tok": 2},
    ),
    "granite-moe": (
        "GraniteMoeForCausalLM",
        {
            **SIZES,
            "num_local_experts": 4,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
    ),
    "minimax-m2": (
        "MiniMaxM2ForCausalLM",
        {**SIZES, "num_local_experts": 5, "num_experts_per_tok": 2, "rotary_dim": 8},
    ),
    # transformers takes the short factors for all lengths, so the original context is the whole one.
    "phimoe": (
        "PhimoeForCausalLM",
        {
            **SIZES,
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
    "gpt-oss": (
        "GptOssForCausalLM",
        {
            **SIZES,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "swiglu_limit": 1.5,
            "rope_parameters": {**YARN_ROPE, "truncate": False},
        },
    ),
    "llama4": ("Llama4ForCausalLM", {**LLAMA4, "interleave_moe_layer_step": 2, "attention_bias": True}),
    "llama4-with-vision": (
        "Llama4ForConditionalGeneration",
        {
            "text_config": {
                **LLAMA4,
                "use_qk_norm": False,
                "rope_parameters": {**LLAMA3_ROPE, "high_freq_factor": 1.0},
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
}
