"""What an architecture of GGUF files is, and names, settings and changes that several have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.formats.gguf.changes import AROUND_ONE, Change, computed, paired
from engine.formats.gguf.settings import Setting, has_tensor, real, whole


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
    #: Settings of the file that have to have this value, if any.
    refuses: Mapping[str, object] = field(default_factory=dict)


TOP = {"/token_embd": "model.embed_tokens", "/output_norm": "model.norm", "/output": "lm_head"}

ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}

HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}

MLP = {
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

LLAMA = {**TOP, **ATTENTION, **MLP}

#: Norms after both parts, and their names before the parts.
FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

PAIRED = {
    "self_attn.q_proj": paired("num_attention_heads"),
    "self_attn.k_proj": paired("num_key_value_heads"),
}

NORMS_AROUND_ONE = dict.fromkeys(
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


def experts(name: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> dict[str, str]:
    """The matrices of a mixture. name: of the experts."""
    names = {"gate": gate, "up": up, "down": down}
    return {f"ffn_{part}_exps": f"{name}.{{e}}.{theirs}" for part, theirs in names.items()}


def shared_expert(name: str) -> dict[str, str]:
    """The matrices of an expert for every token. name: of it."""
    return {f"ffn_{part}_shexp": f"{name}.{part}_proj" for part in ("gate", "up", "down")}


MIXTURE = {
    "num_experts": whole("expert_count"),
    "num_experts_per_tok": whole("expert_used_count"),
    "moe_intermediate_size": whole("expert_feed_forward_length"),
}

GRANITE = {
    "attention_multiplier": real("attention.scale", 1.0),
    "embedding_multiplier": real("embedding_scale", 1.0),
    "residual_multiplier": real("residual_scale", 1.0),
    "logits_scaling": real("logit_scale", 1.0),
}

BIASES = {"attention_bias": has_tensor("blk.0.attn_q.bias"), "mlp_bias": has_tensor("blk.0.ffn_up.bias")}

GRANITE_EXPERT_NAMES = {
    "ffn_gate_inp": "block_sparse_moe.router.layer",
    "ffn_gate_exps": "block_sparse_moe.input_linear",
    "ffn_up_exps": "block_sparse_moe.input_linear",
    "ffn_down_exps": "block_sparse_moe.output_linear",
}

GRANITE_EXPERT_CHANGES = {
    "block_sparse_moe.input_linear": Change(dim=1),
    "block_sparse_moe.output_linear": Change(dim=1),
}

QWEN_EXPERT_NAMES = {
    "ffn_gate_inp": "mlp.gate",
    **experts("mlp.experts"),
    **shared_expert("mlp.shared_expert"),
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}

QWEN_EXPERT_CHANGES = {"mlp.shared_expert_gate": computed(lambda row: row.view(1, -1))}

QWEN_SHARED = {"shared_expert_intermediate_size": whole("expert_shared_feed_forward_length")}

#: Settings of the mixtures that DeepSeek, GLM-4.5 and Nemotron 3 have.
ROUTED = {
    "n_routed_experts": whole("expert_count"),
    "num_experts_per_tok": whole("expert_used_count"),
    "moe_intermediate_size": whole("expert_feed_forward_length"),
    "n_shared_experts": whole("expert_shared_count", 0),
    "routed_scaling_factor": real("expert_weights_scale", 1.0),
}
