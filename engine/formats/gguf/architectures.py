"""The architectures of GGUF files, as data: what config.json says, which tensor is which, and what was changed in them.

Names and changes are facts of llama.cpp: its table of tensors (gguf-py), its converter and its graphs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, TypeVar

from engine.errors import CheckpointError
from engine.formats.gguf.changes import (
    AROUND_ONE,
    DECAY,
    FLAT,
    TAPS,
    Change,
    alternating,
    computed,
    grouped_by_key_head,
    paired,
    products_of_heads,
    tiled,
)
from engine.formats.gguf.file import GgufFile
from engine.formats.gguf.settings import (
    FileSettings,
    Setting,
    has_any,
    has_tensor,
    kinds_by_heads,
    layer_types,
    quotient,
    real,
    whole,
    window,
)
from engine.json_files import quoted

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture, beside what all have in common (config.py)."""

    model: str  #: its name in config.json
    settings: Mapping[str, Setting] = field(default_factory=dict)  #: by key of config.json
    #: By the name of a tensor in a layer, with or without its ending, or with "/" before one of the whole model: its
    #: name in the model's layer, "{e}" where it is a stack of experts. Tensors of one name are joined.
    names: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)  #: by the names in the model's layer, without endings
    layers: str = "model.layers"
    rope: Mapping[str, Setting] = field(default_factory=dict)  #: as `settings`, of the embedding of positions
    rotates_part: bool = False  #: heads may be rotated in part
    is_latent: bool = False  #: latent attention: other sizes of keys and values than a head's
    window_base: float | None = None  #: layers with a window have a base of their own, by default this one
    refuses: Mapping[str, object] = field(default_factory=dict)  #: settings of the file that have to have this value, if any


_TOP = {"/token_embd": "model.embed_tokens", "/output_norm": "model.norm", "/output": "lm_head"}
_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_MLP = {
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LLAMA = {**_TOP, **_ATTENTION, **_MLP}
#: Norms after both parts, and their names before the parts.
_FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PAIRED = {
    "self_attn.q_proj": paired("num_attention_heads"),
    "self_attn.k_proj": paired("num_key_value_heads"),
}
_NORMS_AROUND_ONE = dict.fromkeys(
    (
        "model.norm",
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
        "self_attn.q_norm",
        "self_attn.k_norm",
    ),
    AROUND_ONE,
)


def _experts(name: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> dict[str, str]:
    """The matrices of a mixture. name: of the experts."""
    names = {"gate": gate, "up": up, "down": down}
    return {f"ffn_{part}_exps": f"{name}.{{e}}.{theirs}" for part, theirs in names.items()}


def _shared_expert(name: str) -> dict[str, str]:
    return {f"ffn_{part}_shexp": f"{name}.{part}_proj" for part in ("gate", "up", "down")}


_MIXTURE = {
    "num_experts": whole("expert_count"),
    "num_experts_per_tok": whole("expert_used_count"),
    "moe_intermediate_size": whole("expert_feed_forward_length"),
}
_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": None}


def _query_scalar(size_of_27b: int) -> Setting:
    """The largest Gemma 2 and 3 scale scores by the channels of a head that the stream would have."""

    def scalar(settings: FileSettings) -> int:
        heads = settings.require("attention.head_count", int)
        hidden = settings.require("embedding_length", int)
        is_27b = settings.num_layers == size_of_27b
        return hidden // max(heads, 1) if is_27b else settings.require("attention.key_length", int)

    return scalar


_GRANITE = {
    "attention_multiplier": real("attention.scale", 1.0),
    "embedding_multiplier": real("embedding_scale", 1.0),
    "residual_multiplier": real("residual_scale", 1.0),
    "logits_scaling": real("logit_scale", 1.0),
}

_BIASES = {"attention_bias": has_tensor("blk.0.attn_q.bias"), "mlp_bias": has_tensor("blk.0.ffn_up.bias")}

_GRANITE_EXPERT_NAMES = {
    "ffn_gate_inp": "block_sparse_moe.router.layer",
    "ffn_gate_exps": "block_sparse_moe.input_linear",
    "ffn_up_exps": "block_sparse_moe.input_linear",
    "ffn_down_exps": "block_sparse_moe.output_linear",
}
_GRANITE_EXPERT_CHANGES = {
    "block_sparse_moe.input_linear": Change(dim=1),
    "block_sparse_moe.output_linear": Change(dim=1),
}
_LFM2 = {
    "norm_eps": lambda settings: settings.norm_eps,
    "block_auto_adjust_ff_dim": False,
    "conv_L_cache": whole("shortconv.l_cache"),
    "conv_bias": has_any(".shortconv.conv.bias"),
    "layer_types": kinds_by_heads("full_attention", "conv"),
}
_LFM2_NAMES = {
    **_TOP,
    "/token_embd_norm": "model.embedding_norm",
    **_ATTENTION,
    "attn_norm": "operator_norm",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    **{f"shortconv.{part}": f"conv.{part}" for part in ("in_proj", "conv", "out_proj")},
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
}
_EXPERTS_OF_MAVERICK = 128  #: Llama 4 Maverick, whose heads have no norms
_SSM = {
    "ssm_in": "in_proj",
    "ssm_conv1d": "conv1d",
    "ssm_dt.bias": "dt_bias",
    "ssm_a": "A_log",
    "ssm_d": "D",
    "ssm_norm": "norm",
    "ssm_out": "out_proj",
}
_SSM_CHANGES = {"conv1d.weight": TAPS, "A_log": DECAY, "D": FLAT, "norm": FLAT}
_MAMBA2 = {
    "mamba_n_heads": whole("ssm.time_step_rank"),
    "mamba_d_head": quotient("ssm.inner_size", "ssm.time_step_rank"),
    "mamba_d_state": whole("ssm.state_size"),
    "mamba_d_conv": whole("ssm.conv_kernel"),
    "mamba_n_groups": whole("ssm.group_count"),
    "mamba_expand": quotient("ssm.inner_size", "embedding_length"),
    "mamba_conv_bias": has_any(".ssm_conv1d.bias"),
    "mamba_proj_bias": has_any(".ssm_in.bias"),
}


def _within(name: str, values: Mapping[str, _T], *, as_keys: bool = False) -> dict[str, Any]:
    """Names, or changes by them, of a part of a layer."""
    if as_keys:
        return {f"{name}.{key}": value for key, value in values.items()}
    return {key: f"{name}.{value}" for key, value in values.items()}


def _delta_layers(settings: FileSettings) -> list[str]:
    """Of Qwen3-Next: the file lists the recurrent layers, or has attention in every fourth one."""
    listed = settings.optional("attention.recurrent_layers", list)
    interval = settings.get("full_attention_interval", int, 4)
    if listed is None:
        listed = [(index + 1) % max(interval, 1) != 0 for index in range(settings.num_layers)]
    return ["linear_attention" if is_it else "full_attention" for is_it in listed[: settings.num_layers]]


_DELTA_NET = {
    "layer_types": _delta_layers,
    "linear_num_key_heads": whole("ssm.group_count"),
    "linear_num_value_heads": whole("ssm.time_step_rank"),
    "linear_key_head_dim": whole("ssm.state_size"),
    "linear_value_head_dim": quotient("ssm.inner_size", "ssm.time_step_rank"),
    "linear_conv_kernel_dim": whole("ssm.conv_kernel"),
}
_DELTA_NET_NAMES = {
    **_TOP,
    **_ATTENTION,
    **_HEAD_NORMS,
    **_MLP,
    "post_attention_norm": "post_attention_layernorm",
    **_within("linear_attn", {key: name for key, name in _SSM.items() if key not in ("ssm_in", "ssm_d")}),
}
_VALUES = "linear_value_head_dim"
_CONVOLVED = tiled(_VALUES, before="linear_key_head_dim")
_QWEN35_NAMES = {
    **_DELTA_NET_NAMES,
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
}
_QWEN35_CHANGES = {
    **_NORMS_AROUND_ONE,
    "linear_attn.in_proj_qkv": Change(rows=_CONVOLVED),
    "linear_attn.in_proj_z": Change(rows=tiled(_VALUES)),
    "linear_attn.in_proj_b": Change(rows=tiled(1)),
    "linear_attn.in_proj_a": Change(rows=tiled(1)),
    "linear_attn.conv1d": replace(TAPS, rows=_CONVOLVED),
    "linear_attn.A_log": replace(DECAY, rows=tiled(1)),
    "linear_attn.dt_bias": Change(rows=tiled(1)),
    "linear_attn.out_proj": Change(columns=tiled(_VALUES)),
}
_QWEN_EXPERT_NAMES = {
    "ffn_gate_inp": "mlp.gate",
    **_experts("mlp.experts"),
    **_shared_expert("mlp.shared_expert"),
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_QWEN_EXPERT_CHANGES = {"mlp.shared_expert_gate": computed(lambda row: row.view(1, -1))}
_QWEN_SHARED = {"shared_expert_intermediate_size": whole("expert_shared_feed_forward_length")}


def _expert_groups(key: str, of_large: int) -> Setting:
    """Groups of experts. Older files do not say them: the smaller DeepSeek V2 has none."""

    def groups(settings: FileSettings) -> int:
        is_small = settings.require("expert_count", int) <= _EXPERTS_OF_LITE
        return settings.get(key, int, 1) if is_small else settings.require(key, int)

    return groups


_EXPERTS_OF_LITE = 64


def _latent(of_heads: str, of_older: str) -> Setting:
    """Channels of a head: newer files say the size of latent attention where older ones say that of heads."""
    return lambda settings: (
        settings.get(f"attention.{of_heads}", int, 0) or settings.require(f"attention.{of_older}", int)
    )


_DEEPSEEK = {
    "kv_lora_rank": whole("attention.kv_lora_rank"),
    "q_lora_rank": lambda settings: settings.optional("attention.q_lora_rank", int),
    "qk_rope_head_dim": whole("rope.dimension_count"),
    "qk_nope_head_dim": lambda settings: (
        _latent("key_length_mla", "key_length")(settings) - settings.require("rope.dimension_count", int)
    ),
    "v_head_dim": _latent("value_length_mla", "value_length"),
    "num_key_value_heads": lambda settings: settings.most("attention.head_count"),
    "n_routed_experts": whole("expert_count"),
    "num_experts_per_tok": whole("expert_used_count"),
    "moe_intermediate_size": whole("expert_feed_forward_length"),
    "n_shared_experts": whole("expert_shared_count"),
    "first_k_dense_replace": whole("leading_dense_block_count", 0),
    "routed_scaling_factor": real("expert_weights_scale", 1.0),
    "norm_topk_prob": lambda settings: settings.get("expert_weights_norm", bool, False),
    "n_group": _expert_groups("expert_group_count", 8),
    "topk_group": _expert_groups("expert_group_used_count", 4),
}
_DEEPSEEK_NAMES = {
    **_LLAMA,
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.kv_b_proj",
    "attn_v_b": "self_attn.kv_b_proj",
    "ffn_gate_inp": "mlp.gate",
    **_experts("mlp.experts"),
    **_shared_expert("mlp.shared_experts"),
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
}
_DEEPSEEK_CHANGES = {"self_attn.kv_b_proj": Change(values=products_of_heads)}


def _amplitude(settings: FileSettings) -> float | None:
    """The converter multiplies this weight of YaRN's factor by 0.1, in this architecture only."""
    found = settings.get("rope.scaling.yarn_log_multiplier", float, 0.0)
    return round(10 * found, 6) if found else None


_DEEPSEEK_ROPE = {"mscale": _amplitude, "mscale_all_dim": _amplitude}


def _nemotron_kinds(settings: FileSettings) -> list[str]:
    """What each layer is: attention has key heads, feed-forward parts have a length."""
    heads, lengths = settings.by_layer("attention.head_count_kv"), settings.by_layer("feed_forward_length")
    has_experts = [settings.has(f"blk.{index}.ffn_gate_inp.weight") for index in range(settings.num_layers)]
    return [
        "attention" if num_heads else "moe" if is_mixture else "mlp" if length else "mamba"
        for num_heads, length, is_mixture in zip(heads, lengths, has_experts, strict=True)
    ]


_NEMOTRON = {
    "layers_block_type": _nemotron_kinds,
    "mamba_num_heads": whole("ssm.time_step_rank"),
    "mamba_head_dim": quotient("ssm.inner_size", "ssm.time_step_rank"),
    "ssm_state_size": whole("ssm.state_size"),
    "n_groups": whole("ssm.group_count"),
    "conv_kernel": whole("ssm.conv_kernel"),
    "layer_norm_epsilon": lambda settings: settings.norm_eps,
    "use_conv_bias": has_any(".ssm_conv1d.bias"),
    "use_bias": has_any(".ssm_in.bias"),
    "mlp_bias": lambda settings: settings.has_any(".ffn_up.bias") or settings.has_any(".ffn_up_shexp.bias"),
}
_NEMOTRON_NAMES = {
    "/token_embd": "backbone.embeddings",
    "/output_norm": "backbone.norm_f",
    "/output": "lm_head",
    "attn_norm": "norm",
    **_within(
        "mixer",
        {
            **_SSM,
            **{f"attn_{part}": f"{part}_proj" for part in "qkv"},
            "attn_output": "o_proj",
            "ffn_up": "up_proj",
            "ffn_down": "down_proj",
        },
    ),
}
_NEMOTRON_CHANGES = _within("mixer", _SSM_CHANGES, as_keys=True)


def _sparsities(settings: FileSettings) -> list[float]:
    """Shares of gates that are cut off, from the distances in standard deviations."""
    distances = settings.require("activation_sparsity_scale", list)
    if not all(isinstance(distance, float) for distance in distances):
        raise settings.error("activation_sparsity_scale must be numbers")
    return [round(NormalDist().cdf(distance), 6) for distance in distances[: settings.num_layers]]


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", _BIASES, _LLAMA, _PAIRED),
    "mixtral": Architecture(  # files say llama, too, and have experts
        "MixtralForCausalLM",
        {"num_local_experts": whole("expert_count"), "num_experts_per_tok": whole("expert_used_count")},
        {
            **_LLAMA,
            "ffn_gate_inp": "block_sparse_moe.gate",
            **_experts("block_sparse_moe.experts", gate="w1", up="w3", down="w2"),
        },
        _PAIRED,
    ),
    "qwen2": Architecture("Qwen2ForCausalLM", names=_LLAMA),
    "qwen3": Architecture("Qwen3ForCausalLM", names={**_LLAMA, **_HEAD_NORMS}),
    "qwen2moe": Architecture(
        "Qwen2MoeForCausalLM",
        {**_MIXTURE, **_QWEN_SHARED, "norm_topk_prob": False},
        {**_LLAMA, **_QWEN_EXPERT_NAMES},
        _QWEN_EXPERT_CHANGES,
    ),
    "qwen3moe": Architecture(
        "Qwen3MoeForCausalLM",
        {**_MIXTURE, "norm_topk_prob": True},
        {**_LLAMA, **_HEAD_NORMS, "ffn_gate_inp": "mlp.gate", **_experts("mlp.experts")},
    ),
    "gemma": Architecture(
        "GemmaForCausalLM", {"hidden_act": "gelu_pytorch_tanh"}, _LLAMA, _NORMS_AROUND_ONE
    ),
    "gemma2": Architecture(
        "Gemma2ForCausalLM",
        {
            **_GEMMA,
            "sliding_window": window(4096),
            "layer_types": layer_types(2),
            "attn_logit_softcapping": real("attn_logit_softcapping", 50.0),
            "final_logit_softcapping": real("final_logit_softcapping", 30.0),
            "query_pre_attn_scalar": _query_scalar(46),
        },
        {**_LLAMA, **_FOUR_NORMS},
        _NORMS_AROUND_ONE,
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        {
            **_GEMMA,
            "sliding_window": window(),
            "layer_types": lambda settings: (
                layer_types(6)(settings)  # type: ignore[operator]
                if settings.get("attention.sliding_window", int, 0)
                else ["full_attention"] * settings.num_layers
            ),
            "final_logit_softcapping": lambda settings: settings.optional("final_logit_softcapping", float) or None,
            "query_pre_attn_scalar": _query_scalar(62),
        },
        {**_LLAMA, **_FOUR_NORMS, **_HEAD_NORMS},
        _NORMS_AROUND_ONE,
        window_base=10_000.0,
    ),
    "phi3": Architecture(
        "Phi3ForCausalLM",
        {"sliding_window": window()},
        {**_LLAMA, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
        rotates_part=True,
    ),
    "gpt-oss": Architecture(
        "GptOssForCausalLM",
        {
            "num_local_experts": whole("expert_count"),
            "num_experts_per_tok": whole("expert_used_count"),
            "intermediate_size": whole("expert_feed_forward_length"),
            "sliding_window": window(128),
            "layer_types": layer_types(2),
            "attention_bias": has_tensor("blk.0.attn_q.bias"),
        },
        {
            **_TOP,
            **_ATTENTION,
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
    "smollm3": Architecture("SmolLM3ForCausalLM", {"no_rope_layer_interval": 4}, _LLAMA, _PAIRED),
    "granite": Architecture("GraniteForCausalLM", {**_GRANITE, **_BIASES}, _LLAMA, _PAIRED),
    "granitemoe": Architecture(
        "GraniteMoeForCausalLM",
        {
            **_GRANITE,
            "num_local_experts": whole("expert_count"),
            "num_experts_per_tok": whole("expert_used_count"),
        },
        {**_LLAMA, **_GRANITE_EXPERT_NAMES},
        {**_PAIRED, **_GRANITE_EXPERT_CHANGES},
    ),
    "olmo2": Architecture(
        "Olmo2ForCausalLM",
        names={
            **_LLAMA,
            **_HEAD_NORMS,
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
    ),
    "glm4": Architecture(
        "Glm4ForCausalLM",
        {"attention_bias": has_tensor("blk.0.attn_q.bias")},
        {
            **_LLAMA,
            "post_attention_norm": "post_self_attn_layernorm",
            "ffn_up": "mlp.gate_up_proj",
            "post_ffw_norm": "post_mlp_layernorm",
        },
        rotates_part=True,
        refuses={"rope.dimension_sections": None},
    ),
    "mistral3": Architecture(
        "Ministral3ForCausalLM",
        {"sliding_window": None},
        _LLAMA,
        _PAIRED,
        rope={"llama_4_scaling_beta": real("attention.temperature_scale", 0.0)},
    ),
    "ernie4_5": Architecture("Ernie4_5ForCausalLM", {"use_bias": has_tensor("blk.0.attn_q.bias")}, _LLAMA),
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
            **_LLAMA,
            "ffn_gate_inp": "mlp.gate",
            **_experts("mlp.experts"),
            **_shared_expert("mlp.shared_experts"),
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
            **{key: _DEEPSEEK[key] for key in _DEEPSEEK if key.startswith(("n_", "num_exp", "moe_", "first", "routed"))},
            "norm_topk_prob": lambda settings: settings.get("expert_weights_norm", bool, True),
            "n_group": whole("expert_group_count", 1),
            "topk_group": whole("expert_group_used_count", 1),
            "attention_bias": has_tensor("blk.0.attn_q.bias"),
            "use_qk_norm": has_tensor("blk.0.attn_q_norm.weight"),
        },
        {
            **_LLAMA,
            **_HEAD_NORMS,
            "post_attention_norm": "post_attention_layernorm",
            "ffn_gate_inp": "mlp.gate",
            **_experts("mlp.experts"),
            **_shared_expert("mlp.shared_experts"),
            "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
        },
        rotates_part=True,
        refuses={"expert_gating_func": 2},
    ),
    "lfm2": Architecture("Lfm2ForCausalLM", _LFM2, _LFM2_NAMES, {"conv.conv.weight": TAPS}),
    "lfm2moe": Architecture(
        "Lfm2MoeForCausalLM",
        {
            **_LFM2,
            **_MIXTURE,
            "num_dense_layers": whole("leading_dense_block_count", 0),
            "use_expert_bias": has_any(".exp_probs_b.bias"),
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
        },
        {
            **_LFM2_NAMES,
            "ffn_gate_inp": "feed_forward.gate",
            **_experts("feed_forward.experts", gate="w1", up="w3", down="w2"),
            "exp_probs_b.bias": "feed_forward.expert_bias",
        },
        {"conv.conv.weight": TAPS},
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
            **_TOP,
            **_ATTENTION,
            "ffn_norm": "post_attention_layernorm",
            **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
            "ffn_gate_inp": "feed_forward.router",
            **_experts("feed_forward.experts"),
            **_shared_expert("feed_forward.shared_expert"),
        },
        refuses={"attention.sliding_window": None},
    ),
    "qwen3next": Architecture(
        "Qwen3NextForCausalLM",
        {**_DELTA_NET, **_MIXTURE, **_QWEN_SHARED, "norm_topk_prob": True},
        {
            **_DELTA_NET_NAMES,
            **_QWEN_EXPERT_NAMES,
            "attn_qkv": "linear_attn.in_proj_qkvz",
            "attn_gate": "linear_attn.in_proj_qkvz",
            "ssm_ba": "linear_attn.in_proj_ba",
        },
        {
            **_NORMS_AROUND_ONE,
            **_QWEN_EXPERT_CHANGES,
            "linear_attn.in_proj_qkvz": Change(
                rows=grouped_by_key_head(*2 * [("linear_key_head_dim", False)], *2 * [(_VALUES, True)])
            ),
            "linear_attn.conv1d": TAPS,
            "linear_attn.A_log": DECAY,
        },
        rotates_part=True,
    ),
    "qwen35": Architecture(
        "Qwen3_5ForCausalLM", _DELTA_NET, _QWEN35_NAMES, _QWEN35_CHANGES, rotates_part=True
    ),
    "qwen35moe": Architecture(
        "Qwen3_5MoeForCausalLM",
        {**_DELTA_NET, **_MIXTURE, **_QWEN_SHARED},
        {**_QWEN35_NAMES, **_QWEN_EXPERT_NAMES},
        {**_QWEN35_CHANGES, **_QWEN_EXPERT_CHANGES},
        rotates_part=True,
    ),
    "gemma3n": Architecture(
        "Gemma3nForCausalLM",
        {
            **_GEMMA,
            "intermediate_size": lambda settings: settings.by_layer("feed_forward_length"),
            "sliding_window": window(512),
            "layer_types": layer_types(5),
            "final_logit_softcapping": lambda settings: settings.optional("final_logit_softcapping", float) or None,
            "altup_num_inputs": whole("altup.num_inputs"),
            "altup_active_idx": whole("altup.active_idx"),
            "altup_correct_scale": True,
            "hidden_size_per_layer_input": whole("embedding_length_per_layer_input"),
            "vocab_size_per_layer_input": lambda settings: settings.rows("per_layer_token_embd.weight"),
            "num_kv_shared_layers": whole("attention.shared_kv_layers"),
            "laurel_rank": lambda settings: settings.rows("blk.0.laurel_l.weight"),
            "activation_sparsity_pattern": _sparsities,
        },
        {
            **_LLAMA,
            **_FOUR_NORMS,
            **_HEAD_NORMS,
            "/per_layer_token_embd": "model.embed_tokens_per_layer",
            "/per_layer_model_proj": "model.per_layer_model_projection",
            "/per_layer_proj_norm": "model.per_layer_projection_norm",
            "/altup_proj": "model.altup_projections.{e}",
            "/altup_unembd_proj": "model.altup_unembed_projections.{e}",
            "altup_correct_coef": "altup.correction_coefs",
            "altup_correct_scale.weight": "altup.correct_output_scale",
            "altup_predict_coef": "altup.prediction_coefs",
            "altup_router": "altup.modality_router",
            "altup_router_norm": "altup.router_norm",
            "inp_gate": "per_layer_input_gate",
            "proj": "per_layer_projection",
            "post_norm": "post_per_layer_input_norm",
            "laurel_l": "laurel.linear_left",
            "laurel_r": "laurel.linear_right",
            "laurel_post_norm": "laurel.post_laurel_norm",
        },
        window_base=10_000.0,
    ),
    "granitehybrid": Architecture(
        "GraniteMoeHybridForCausalLM",
        {
            **_GRANITE,
            **_MAMBA2,
            "layer_types": kinds_by_heads("attention", "mamba"),
            "num_local_experts": whole("expert_count", 0),
            "num_experts_per_tok": whole("expert_used_count", 0),
            "shared_intermediate_size": whole("expert_shared_feed_forward_length"),
            "position_embedding_type": lambda settings: (
                "rope" if settings.get("rope.scaling.finetuned", bool, True) else "nope"
            ),
            "attention_bias": has_any(".attn_q.bias"),
        },
        {
            **_TOP,
            **_ATTENTION,
            "ffn_norm": "post_attention_layernorm",
            **_within("mamba", _SSM),
            "ffn_gate": "shared_mlp.input_linear",
            "ffn_up": "shared_mlp.input_linear",
            "ffn_down": "shared_mlp.output_linear",
            "ffn_gate_shexp": "shared_mlp.input_linear",
            "ffn_up_shexp": "shared_mlp.input_linear",
            "ffn_down_shexp": "shared_mlp.output_linear",
            **_GRANITE_EXPERT_NAMES,
        },
        {**_PAIRED, **_GRANITE_EXPERT_CHANGES, **_within("mamba", _SSM_CHANGES, as_keys=True)},
    ),
    "falcon-h1": Architecture(  # all of its factors are in the weights
        "FalconH1ForCausalLM",
        {
            **_MAMBA2,
            "mamba_d_ssm": whole("ssm.inner_size"),
            "mamba_rms_norm": has_any(".ssm_norm.weight"),
            "mamba_norm_before_gate": False,
            "attention_bias": has_any(".attn_q.bias"),
            "mlp_bias": has_any(".ffn_up.bias"),
            "projectors_bias": has_any(".ssm_out.bias"),
        },
        {
            **_TOP,
            "/output_norm": "model.final_layernorm",
            **_ATTENTION,
            **dict.fromkeys(("ffn_norm", "ffn_norm.weight"), "pre_ff_layernorm.weight"),
            **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
            **_within("mamba", _SSM),
        },
        _within("mamba", _SSM_CHANGES, as_keys=True),
    ),
    "nemotron_h": Architecture(
        "NemotronHForCausalLM", _NEMOTRON, _NEMOTRON_NAMES, _NEMOTRON_CHANGES, layers="backbone.layers", rotates_part=True
    ),
    "nemotron_h_moe": Architecture(
        "NemotronHForCausalLM",
        {
            **_NEMOTRON,
            **{key: _DEEPSEEK[key] for key in ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")},
            **{key: _DEEPSEEK[key] for key in ("n_shared_experts", "routed_scaling_factor", "norm_topk_prob")},
            "moe_shared_expert_intermediate_size": whole("expert_shared_feed_forward_length"),
            "moe_latent_size": lambda settings: settings.optional("moe_latent_size", int),
            "n_group": whole("expert_group_count", 1),
            "topk_group": whole("expert_group_used_count", 1),
        },
        {
            **_NEMOTRON_NAMES,
            **_within(
                "mixer",
                {
                    "ffn_gate_inp": "gate",
                    **{f"ffn_{part}_exps": f"experts.{{e}}.{part}_proj" for part in ("up", "down")},
                    **{f"ffn_{part}_shexp": f"shared_experts.{part}_proj" for part in ("up", "down")},
                    "ffn_latent_down": "fc1_latent_proj",
                    "ffn_latent_up": "fc2_latent_proj",
                    "exp_probs_b.bias": "gate.e_score_correction_bias",
                },
            ),
        },
        _NEMOTRON_CHANGES,
        layers="backbone.layers",
        rotates_part=True,
    ),
}


def architecture_in(file: GgufFile) -> Architecture:
    """The architecture of a file. Raises CheckpointError for one that is not served."""
    name, found = named_in(file)
    if name not in ARCHITECTURES:
        served = ", ".join(ARCHITECTURES)
        raise CheckpointError(f"{file.path.name}: GGUF files of architecture {quoted(name)} are not served, only {served}")
    return ARCHITECTURES[found]


def named_in(file: GgufFile) -> tuple[str, str]:
    """The name of a file's architecture, and the one in the table: files of one name may have experts or not."""
    name = file.settings.get("general.architecture")
    if not isinstance(name, str):
        raise CheckpointError(f"{file.path.name} has no general.architecture")
    has_experts = bool(file.settings.get(f"{name}.expert_count"))
    has_correction = any(tensor.endswith(".exp_probs_b.bias") for tensor in file.tensors)
    scores = file.settings.get(f"{name}.expert_gating_func", _SIGMOID if has_correction else None)
    if name == "deepseek2" and scores == _SIGMOID:
        return name, "deepseek2 (sigmoid)"
    return name, "mixtral" if name == "llama" and has_experts else name


_SIGMOID = 2  #: the number of this way to make weights of scores
