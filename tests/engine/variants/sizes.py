"""Sizes and settings that the configs of several variants have in common."""

VOCAB_SIZE = 311
CONTEXT = 256

#: Shorter than the prompts of the tests by a factor, and no multiple of their page sizes.
WINDOW = 11

SIZES = {
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
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

#: The blend of frequencies lies between two channels; the original context ends inside of the prompts.
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 8.0,
    "beta_fast": 4.0,
    "original_max_position_embeddings": 32,
}

#: Layers 1 and 3 have no positions, and read more than a chunk.
LLAMA4 = {
    **SIZES,
    "num_hidden_layers": 4,
    "intermediate_size_mlp": 64,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
    "no_rope_layer_interval": 2,
    "attention_chunk_size": WINDOW,
    "floor_scale": 16,
    "attn_scale": 0.5,
}

GEMMA_SIZES = {
    **SIZES,
    "head_dim": 16,
    "sliding_window": WINDOW,
    "query_pre_attn_scalar": 24,
}

DELTA_NET = {
    **SIZES,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
DELTA_NET_EXPERTS = {
    **DELTA_NET,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "num_experts": 5,
    "num_experts_per_tok": 4,
}
SECTIONED_ROPE = {
    "rope_type": "default",
    "rope_theta": 1000.0,
    "partial_rotary_factor": 0.5,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
QWEN_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "depth": 1,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": 48,
    "num_position_embeddings": 16,
}
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_state": 5}
GRANITE = {
    **MAMBA2,
    "shared_intermediate_size": 40,
    "embedding_multiplier": 1.5,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.7,
    "attention_multiplier": 0.3,
}

GEMMA4 = {
    **SIZES,
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

LATENT = {
    **{name: value for name, value in SIZES.items() if name != "head_dim"},
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

FALCON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "ffn_hidden_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
    "eos_token_id": None,
}
