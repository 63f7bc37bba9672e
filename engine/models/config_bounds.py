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
    "n_head": _HEADS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "num_kv_heads": _HEADS,
    "head_dim": (1, 8192),
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
    "num_local_experts": (0, 65_536),
    "num_experts_per_tok": _EXPERTS,
    "n_positions": _POSITIONS,
    "max_position_embeddings": _POSITIONS,
    "original_max_position_embeddings": _POSITIONS,
    "sliding_window": _POSITIONS,
    "state_size": _STATE,
    "mamba_d_state": _STATE,
    "time_step_rank": _STATE,
    "mamba_dt_rank": _STATE,
    "linear_key_head_dim": (1, 8192),
    "linear_value_head_dim": (1, 8192),
    "linear_num_key_heads": _HEADS,
    "linear_num_value_heads": _HEADS,
    "linear_conv_kernel_dim": _TAPS,
    "full_attention_interval": _LAYERS,
    "num_heads": _HEADS,
    "mamba_n_heads": _HEADS,
    "mamba_num_heads": _HEADS,
    "n_groups": _HEADS,
    "mamba_n_groups": _HEADS,
    "mamba_d_head": _STATE,
    "mamba_head_dim": _STATE,
    "mamba_d_ssm": _WIDTH,
    "ssm_state_size": _STATE,
    "shared_intermediate_size": _WIDTH,
    "block_ff_dim": _WIDTH,
    "block_multiple_of": _WIDTH,
    "block_ffn_dim_multiplier": _FACTOR,
    "conv_L_cache": _TAPS,
    "num_dense_layers": _LAYER_INDEX,
    "routed_scaling_factor": _FACTOR,
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
    "rms_norm_eps": _EPSILON,
    "layer_norm_eps": _EPSILON,
    "layer_norm_epsilon": _EPSILON,
    "norm_eps": _EPSILON,
    "mixer_rms_eps": _EPSILON,
    "logits_scaling": _FACTOR,
    "norm_epsilon": _EPSILON,
    "query_pre_attn_scalar": (1e-6, 1e9),
    "logit_scale": _FACTOR,
    "attn_logit_softcapping": _FACTOR,
    "final_logit_softcapping": _FACTOR,
}
