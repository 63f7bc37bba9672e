"""Bounds of the numbers in config.json, checked before anything is allocated or divided by them. They are far from any
real model; within them the tensors of the checkpoint decide. Sizes outside them would take gigabytes before the first
tensor is compared (1e9 layers: 7.9 GB)."""

from collections.abc import Mapping
from typing import Final

_LAYERS = (1, 4096)
_LAYER_INDEX = (0, 4096)
_HEADS = (1, 4096)
_WIDTH = (1, 2**20)
_EXPERTS = (1, 65_536)
_POSITIONS = (1, 2**27)
_STATE = (1, 65_536)
_TAPS = (1, 1024)
_BASE = (1.0, 1e15)
_SHARE = (0.0, 1.0)
_EPSILON = (0.0, 1.0)
_FACTOR = (1e-6, 1e6)
_OPTIONAL_WIDTH = (0, 2**20)
_GAIN = (0.0, 1e6)

#: key of config.json, or of an object in it -> least and greatest value
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "n_layer": _LAYERS,
    "num_hidden_layers": _LAYERS,
    "max_window_layers": _LAYER_INDEX,
    "attn_layer_offset": _LAYER_INDEX,
    "attn_layer_period": _LAYERS,
    "expert_layer_offset": _LAYER_INDEX,
    "expert_layer_period": _LAYERS,
    "decoder_sparse_step": _LAYERS,
    "sliding_window_pattern": _LAYERS,
    "_sliding_window_pattern": _LAYERS,
    "no_rope_layer_interval": _LAYERS,
    "n_head": _HEADS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "num_kv_heads": _HEADS,
    "head_dim": (1, 8192),
    "q_lora_rank": _WIDTH,
    "kv_lora_rank": (1, 8192),
    "qk_nope_head_dim": (1, 8192),
    "qk_rope_head_dim": (1, 8192),
    "v_head_dim": (1, 8192),
    "global_head_dim": (1, 8192),
    "num_global_key_value_heads": _HEADS,
    "num_kv_shared_layers": _LAYER_INDEX,
    "hidden_size_per_layer_input": _OPTIONAL_WIDTH,
    "vocab_size_per_layer_input": (1, 2**24),
    "top_k_experts": _EXPERTS,
    "rotary_dim": (1, 8192),
    "n_embd": _WIDTH,
    "hidden_size": _WIDTH,
    "n_inner": _WIDTH,
    "ffn_dim": _WIDTH,
    "ffn_hidden_size": _WIDTH,
    "intermediate_size": _WIDTH,
    "moe_intermediate_size": _WIDTH,
    "shared_expert_intermediate_size": _WIDTH,
    "vocab_size": (1, 2**24),
    "num_experts": _EXPERTS,
    "num_local_experts": _EXPERTS,
    "num_experts_per_tok": _EXPERTS,
    "n_routed_experts": _EXPERTS,
    "n_shared_experts": (0, 1024),
    "n_group": _EXPERTS,
    "topk_group": _EXPERTS,
    "moe_num_experts": _EXPERTS,
    "moe_num_shared_experts": (0, 1024),
    "moe_k": _EXPERTS,
    "moe_topk": _EXPERTS,
    "first_k_dense_replace": _LAYER_INDEX,
    "moe_layer_start_index": _LAYER_INDEX,
    "moe_layer_end_index": (-1, 4096),
    "moe_layer_interval": _LAYERS,
    "n_positions": _POSITIONS,
    "max_position_embeddings": _POSITIONS,
    "original_max_position_embeddings": _POSITIONS,
    "sliding_window": _POSITIONS,
    "state_size": _STATE,
    "mamba_d_state": _STATE,
    "time_step_rank": _STATE,
    "mamba_dt_rank": _STATE,
    "conv_kernel": _TAPS,
    "mamba_d_conv": _TAPS,
    "expand": _TAPS,
    "mamba_expand": _TAPS,
    "rope_theta": _BASE,
    "rotary_emb_base": _BASE,
    "rope_local_base_freq": _BASE,
    "partial_rotary_factor": _SHARE,
    "rotary_pct": _SHARE,
    "factor": _FACTOR,
    "low_freq_factor": _FACTOR,
    "high_freq_factor": _FACTOR,
    "beta_fast": _FACTOR,
    "beta_slow": _FACTOR,
    "attention_factor": _FACTOR,
    "mscale": _GAIN,
    "mscale_all_dim": _GAIN,
    "llama_4_scaling_beta": _GAIN,
    "rms_norm_eps": _EPSILON,
    "layer_norm_eps": _EPSILON,
    "layer_norm_epsilon": _EPSILON,
    "norm_epsilon": _EPSILON,
    "swiglu_alpha": _FACTOR,
    "swiglu_limit": _FACTOR,
    "query_pre_attn_scalar": (1e-6, 1e9),
    "logit_scale": _FACTOR,
    "alpha": _FACTOR,
    "short_mscale": _FACTOR,
    "long_mscale": _FACTOR,
    "router_jitter_noise": _SHARE,
    "routed_scaling_factor": _FACTOR,
    "embedding_multiplier": _FACTOR,
    "attention_multiplier": _FACTOR,
    "residual_multiplier": _FACTOR,
    "logits_scaling": _FACTOR,
    "attn_logit_softcapping": _FACTOR,
    "final_logit_softcapping": _FACTOR,
}
