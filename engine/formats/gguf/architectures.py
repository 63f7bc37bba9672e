"""The architectures of GGUF files, as data: what config.json says, which tensor is which, and what was changed in them.

Names and changes are facts of llama.cpp: its table of tensors (gguf-py), its converter and its graphs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    has_tensor,
    kinds_by_heads,
    layer_types,
    most,
    real,
    whole,
    window,
)
from engine.json_files import quoted


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
        {
            **_MIXTURE,
            "shared_expert_intermediate_size": whole("expert_shared_feed_forward_length"),
            "norm_topk_prob": False,
        },
        {
            **_LLAMA,
            "ffn_gate_inp": "mlp.gate",
            **_experts("mlp.experts"),
            **_shared_expert("mlp.shared_expert"),
            "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        },
        {"mlp.shared_expert_gate": computed(lambda row: row.view(1, -1))},
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
        {
            **_LLAMA,
            "ffn_gate_inp": "block_sparse_moe.router.layer",
            "ffn_gate_exps": "block_sparse_moe.input_linear",
            "ffn_up_exps": "block_sparse_moe.input_linear",
            "ffn_down_exps": "block_sparse_moe.output_linear",
        },
        {**_PAIRED, "block_sparse_moe.input_linear": Change(dim=1), "block_sparse_moe.output_linear": Change(dim=1)},
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
    return name, "mixtral" if name == "llama" and has_experts else name
