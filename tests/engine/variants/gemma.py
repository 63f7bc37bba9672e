"""Variants of the Gemma family."""

from collections.abc import Mapping
from typing import Any

from tests.engine.variants.sizes import GEMMA4, GEMMA_SIZES, LINEAR_ROPE, SIZES, VOCAB_SIZE, WINDOW

GEMMA: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("Gemma2ForCausalLM", {**GEMMA_SIZES, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}),
    "gemma3": (
        "Gemma3ForCausalLM",
        {
            **GEMMA_SIZES,
            "num_hidden_layers": 7,
            "rope_parameters": {"full_attention": LINEAR_ROPE, "sliding_attention": {"rope_type": "default"}},
        },
    ),
    "gemma3-with-vision": (
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {**GEMMA_SIZES, "_sliding_window_pattern": 2},
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
            **SIZES,
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
    "gemma4": ("Gemma4ForCausalLM", GEMMA4),
    "gemma4-with-experts": (
        "Gemma4ForConditionalGeneration",
        {
            "text_config": {
                **GEMMA4,
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
    "gemma": ("GemmaForCausalLM", {**SIZES, "pad_token_id": None}),
}
