"""Models of attention layers with mixtures of experts."""

from collections.abc import Callable, Mapping

from engine.formats.gguf.changes import Change, alternating, computed, products_of_heads
from engine.formats.gguf.families.shared import (
    ATTENTION,
    GRANITE,
    GRANITE_EXPERT_CHANGES,
    GRANITE_EXPERT_NAMES,
    HEAD_NORMS,
    LLAMA,
    MIXTURE,
    PAIRED,
    QWEN_EXPERT_CHANGES,
    QWEN_EXPERT_NAMES,
    QWEN_SHARED,
    ROUTED,
    TOP,
    Architecture,
    experts,
    shared_expert,
)
from engine.formats.gguf.settings import FileSettings, Setting, has_tensor, layer_types, whole, window

_EXPERTS_OF_MAVERICK = 128  #: Llama 4 Maverick, whose heads have no norms


def _expert_groups(key: str) -> Setting:
    """Groups of experts. Older files do not say them: the smaller DeepSeek V2 has none."""

    def groups(settings: FileSettings) -> int:
        is_small = settings.require("expert_count", int) <= _EXPERTS_OF_LITE
        return settings.get(key, int, 1) if is_small else settings.require(key, int)

    return groups


_EXPERTS_OF_LITE = 64


def _latent(of_heads: str, of_older: str) -> Callable[[FileSettings], int]:
    """Channels of a head: newer files say the size of latent attention where older ones say that of heads."""
    return lambda settings: (
        settings.get(f"attention.{of_heads}", int, 0) or settings.require(f"attention.{of_older}", int)
    )


_DEEPSEEK = {
    **ROUTED,
    "kv_lora_rank": whole("attention.kv_lora_rank"),
    "q_lora_rank": lambda settings: settings.optional("attention.q_lora_rank", int),
    "qk_rope_head_dim": whole("rope.dimension_count"),
    "qk_nope_head_dim": lambda settings: (
        _latent("key_length_mla", "key_length")(settings) - settings.require("rope.dimension_count", int)
    ),
    "v_head_dim": _latent("value_length_mla", "value_length"),
    "num_key_value_heads": lambda settings: settings.most("attention.head_count"),
    "first_k_dense_replace": whole("leading_dense_block_count", 0),
    "norm_topk_prob": lambda settings: settings.get("expert_weights_norm", bool, False),
    "n_group": _expert_groups("expert_group_count"),
    "topk_group": _expert_groups("expert_group_used_count"),
}

_DEEPSEEK_NAMES = {
    **LLAMA,
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.kv_b_proj",
    "attn_v_b": "self_attn.kv_b_proj",
    "ffn_gate_inp": "mlp.gate",
    **experts("mlp.experts"),
    **shared_expert("mlp.shared_experts"),
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
}

_DEEPSEEK_CHANGES = {"self_attn.kv_b_proj": Change(values=products_of_heads)}


def _amplitude(settings: FileSettings) -> float | None:
    """The converter multiplies this weight of YaRN's factor by 0.1, in this architecture only."""
    found = settings.get("rope.scaling.yarn_log_multiplier", float, 0.0)
    return round(10 * found, 6) if found else None


_DEEPSEEK_ROPE = {"mscale": _amplitude, "mscale_all_dim": _amplitude}

MIXTURES: Mapping[str, Architecture] = {
    "mixtral": Architecture(  # files say llama, too, and have experts
        "MixtralForCausalLM",
        {"num_local_experts": whole("expert_count"), "num_experts_per_tok": whole("expert_used_count")},
        {
            **LLAMA,
            "ffn_gate_inp": "block_sparse_moe.gate",
            **experts("block_sparse_moe.experts", gate="w1", up="w3", down="w2"),
        },
        PAIRED,
    ),
    "qwen2moe": Architecture(
        "Qwen2MoeForCausalLM",
        {**MIXTURE, **QWEN_SHARED, "norm_topk_prob": False},
        {**LLAMA, **QWEN_EXPERT_NAMES},
        QWEN_EXPERT_CHANGES,
    ),
    "qwen3moe": Architecture(
        "Qwen3MoeForCausalLM",
        {**MIXTURE, "norm_topk_prob": True},
        {**LLAMA, **HEAD_NORMS, "ffn_gate_inp": "mlp.gate", **experts("mlp.experts")},
    ),
    "gpt-oss": Architecture(
        "GptOssForCausalLM",
        {
            "num_local_experts": whole("expert_count"),
            "num_experts_per_tok": whole("expert_used_count"),
            "intermediate_size": whole("expert_feed_forward_length"),
            "sliding_window": window(128),
            "layer_types": layer_types(2, 128),
            "attention_bias": has_tensor("blk.0.attn_q.bias"),
        },
        {
            **TOP,
            **ATTENTION,
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "post_attention_layernorm",
            "attn_sinks.weight": "self_attn.sinks",
            "ffn_gate_inp": "mlp.router",
            "ffn_gate_exps.weight": "mlp.experts.gate_up_proj",
            "ffn_up_exps.weight": "mlp.experts.gate_up_proj",
            "ffn_down_exps.weight": "mlp.experts.down_proj",
            "ffn_gate_exps.bias": "mlp.experts.gate_up_proj_bias",
            "ffn_up_exps.bias": "mlp.experts.gate_up_proj_bias",
            "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
        },
        {
            "mlp.experts.gate_up_proj": Change(rows=alternating, dim=1, is_transposed=True),
            "mlp.experts.down_proj": Change(dim=1, is_transposed=True),
            "mlp.experts.gate_up_proj_bias": Change(rows=alternating, dim=1),
        },
        rope={"truncate": False},
    ),
    "granitemoe": Architecture(
        "GraniteMoeForCausalLM",
        {
            **GRANITE,
            "num_local_experts": whole("expert_count"),
            "num_experts_per_tok": whole("expert_used_count"),
        },
        {**LLAMA, **GRANITE_EXPERT_NAMES},
        {**PAIRED, **GRANITE_EXPERT_CHANGES},
    ),
    "ernie4_5-moe": Architecture(
        "Ernie4_5_MoeForCausalLM",
        {
            "moe_num_experts": whole("expert_count"),
            "moe_k": whole("expert_used_count"),
            "moe_intermediate_size": whole("expert_feed_forward_length"),
            "moe_num_shared_experts": whole("expert_shared_count", 0),
            "moe_layer_interval": whole("interleave_moe_layer_step"),
            "moe_layer_start_index": whole("leading_dense_block_count", 0),
            "moe_layer_end_index": -1,
            "use_bias": has_tensor("blk.0.attn_q.bias"),
        },
        {
            **LLAMA,
            "ffn_gate_inp": "mlp.gate",
            **experts("mlp.experts"),
            **shared_expert("mlp.shared_experts"),
            "exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias",
        },
        {"mlp.moe_statics.e_score_correction_bias": computed(lambda row: row.view(1, -1))},
    ),
    "deepseek2": Architecture(
        "DeepseekV2ForCausalLM",
        {
            **_DEEPSEEK,
            "topk_method": lambda settings: (
                "group_limited_greedy" if settings.get("expert_group_count", int, 1) > 1 else "greedy"
            ),
        },
        _DEEPSEEK_NAMES,
        _DEEPSEEK_CHANGES,
        rope=_DEEPSEEK_ROPE,
        is_latent=True,
        refuses={"attention.temperature_scale": 0.0, "expert_gating_func": 1},
    ),
    "deepseek2 (sigmoid)": Architecture(
        "DeepseekV3ForCausalLM",
        _DEEPSEEK,
        _DEEPSEEK_NAMES,
        _DEEPSEEK_CHANGES,
        rope=_DEEPSEEK_ROPE,
        is_latent=True,
        refuses={"attention.temperature_scale": 0.0},
    ),
    "glm4moe": Architecture(
        "Glm4MoeForCausalLM",
        {
            **ROUTED,
            "first_k_dense_replace": whole("leading_dense_block_count", 0),
            "norm_topk_prob": lambda settings: settings.get("expert_weights_norm", bool, True),
            "n_group": whole("expert_group_count", 1),
            "topk_group": whole("expert_group_used_count", 1),
            "attention_bias": has_tensor("blk.0.attn_q.bias"),
            "use_qk_norm": has_tensor("blk.0.attn_q_norm.weight"),
        },
        {
            **LLAMA,
            **HEAD_NORMS,
            "post_attention_norm": "post_attention_layernorm",
            "ffn_gate_inp": "mlp.gate",
            **experts("mlp.experts"),
            **shared_expert("mlp.shared_experts"),
            "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
        },
        rotates_part=True,
        refuses={"expert_gating_func": 2},
    ),
    "llama4": Architecture(
        "Llama4ForCausalLM",
        {
            "intermediate_size": whole("expert_feed_forward_length"),
            "intermediate_size_mlp": whole("feed_forward_length"),
            "num_local_experts": whole("expert_count"),
            "num_experts_per_tok": whole("expert_used_count"),
            "interleave_moe_layer_step": whole("interleave_moe_layer_step"),
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
            "use_qk_norm": lambda settings: settings.require("expert_count", int) != _EXPERTS_OF_MAVERICK,
        },
        {
            **TOP,
            **ATTENTION,
            "ffn_norm": "post_attention_layernorm",
            **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
            "ffn_gate_inp": "feed_forward.router",
            **experts("feed_forward.experts"),
            **shared_expert("feed_forward.shared_expert"),
        },
        refuses={"attention.sliding_window": None},
    ),
}
