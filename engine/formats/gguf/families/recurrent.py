"""Models with recurrent layers or convolutions beside attention, dense or with experts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from engine.formats.gguf.changes import DECAY, FLAT, TAPS, Change, grouped_by_key_head, tiled
from engine.formats.gguf.families.shared import (
    ATTENTION,
    GRANITE,
    GRANITE_EXPERT_CHANGES,
    GRANITE_EXPERT_NAMES,
    HEAD_NORMS,
    MIXTURE,
    MLP,
    NORMS_AROUND_ONE,
    PAIRED,
    QWEN_EXPERT_CHANGES,
    QWEN_EXPERT_NAMES,
    QWEN_SHARED,
    ROUTED,
    TOP,
    Architecture,
    experts,
)
from engine.formats.gguf.settings import FileSettings, has_any, kinds_by_heads, quotient, whole

_T = TypeVar("_T")


_LFM2 = {
    "norm_eps": lambda settings: settings.norm_eps,
    "block_auto_adjust_ff_dim": False,
    "conv_L_cache": whole("shortconv.l_cache"),
    "conv_bias": has_any(".shortconv.conv.bias"),
    "layer_types": kinds_by_heads("full_attention", "conv"),
}

_LFM2_NAMES = {
    **TOP,
    "/token_embd_norm": "model.embedding_norm",
    **ATTENTION,
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
    """What the layers of Qwen3-Next are: the file lists the recurrent ones, or every fourth one has attention."""
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
    **TOP,
    **ATTENTION,
    **HEAD_NORMS,
    **MLP,
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
    **NORMS_AROUND_ONE,
    "linear_attn.in_proj_qkv": Change(rows=_CONVOLVED),
    "linear_attn.in_proj_z": Change(rows=tiled(_VALUES)),
    "linear_attn.in_proj_b": Change(rows=tiled(1)),
    "linear_attn.in_proj_a": Change(rows=tiled(1)),
    "linear_attn.conv1d": replace(TAPS, rows=_CONVOLVED),
    "linear_attn.A_log": replace(DECAY, rows=tiled(1)),
    "linear_attn.dt_bias": Change(rows=tiled(1)),
    "linear_attn.out_proj": Change(columns=tiled(_VALUES)),
}


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

RECURRENT: Mapping[str, Architecture] = {
    "lfm2": Architecture("Lfm2ForCausalLM", _LFM2, _LFM2_NAMES, {"conv.conv.weight": TAPS}),
    "lfm2moe": Architecture(
        "Lfm2MoeForCausalLM",
        {
            **_LFM2,
            **MIXTURE,
            "num_dense_layers": whole("leading_dense_block_count", 0),
            "use_expert_bias": has_any(".exp_probs_b.bias"),
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
        },
        {
            **_LFM2_NAMES,
            "ffn_gate_inp": "feed_forward.gate",
            **experts("feed_forward.experts", gate="w1", up="w3", down="w2"),
            "exp_probs_b.bias": "feed_forward.expert_bias",
        },
        {"conv.conv.weight": TAPS},
        refuses={"expert_gating_func": 2},
    ),
    "qwen3next": Architecture(
        "Qwen3NextForCausalLM",
        {**_DELTA_NET, **MIXTURE, **QWEN_SHARED, "norm_topk_prob": True},
        {
            **_DELTA_NET_NAMES,
            **QWEN_EXPERT_NAMES,
            "attn_qkv": "linear_attn.in_proj_qkvz",
            "attn_gate": "linear_attn.in_proj_qkvz",
            "ssm_ba": "linear_attn.in_proj_ba",
        },
        {
            **NORMS_AROUND_ONE,
            **QWEN_EXPERT_CHANGES,
            "linear_attn.in_proj_qkvz": Change(
                rows=grouped_by_key_head(*2 * [("linear_key_head_dim", False)], *2 * [(_VALUES, True)])
            ),
            "linear_attn.conv1d": TAPS,
            "linear_attn.A_log": DECAY,
        },
        rotates_part=True,
    ),
    "qwen35": Architecture("Qwen3_5ForCausalLM", _DELTA_NET, _QWEN35_NAMES, _QWEN35_CHANGES, rotates_part=True),
    "qwen35moe": Architecture(
        "Qwen3_5MoeForCausalLM",
        {**_DELTA_NET, **MIXTURE, **QWEN_SHARED},
        {**_QWEN35_NAMES, **QWEN_EXPERT_NAMES},
        {**_QWEN35_CHANGES, **QWEN_EXPERT_CHANGES},
        rotates_part=True,
    ),
    "granitehybrid": Architecture(
        "GraniteMoeHybridForCausalLM",
        {
            **GRANITE,
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
            **TOP,
            **ATTENTION,
            "ffn_norm": "post_attention_layernorm",
            **_within("mamba", _SSM),
            "ffn_gate": "shared_mlp.input_linear",
            "ffn_up": "shared_mlp.input_linear",
            "ffn_down": "shared_mlp.output_linear",
            "ffn_gate_shexp": "shared_mlp.input_linear",
            "ffn_up_shexp": "shared_mlp.input_linear",
            "ffn_down_shexp": "shared_mlp.output_linear",
            **GRANITE_EXPERT_NAMES,
        },
        {**PAIRED, **GRANITE_EXPERT_CHANGES, **_within("mamba", _SSM_CHANGES, as_keys=True)},
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
            **TOP,
            "/output_norm": "model.final_layernorm",
            **ATTENTION,
            **dict.fromkeys(("ffn_norm", "ffn_norm.weight"), "pre_ff_layernorm.weight"),
            **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
            **_within("mamba", _SSM),
        },
        _within("mamba", _SSM_CHANGES, as_keys=True),
    ),
    "nemotron_h": Architecture(
        "NemotronHForCausalLM",
        _NEMOTRON,
        _NEMOTRON_NAMES,
        _NEMOTRON_CHANGES,
        layers="backbone.layers",
        rotates_part=True,
    ),
    "nemotron_h_moe": Architecture(
        "NemotronHForCausalLM",
        {
            **_NEMOTRON,
            **ROUTED,
            "norm_topk_prob": lambda settings: settings.get("expert_weights_norm", bool, False),
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
