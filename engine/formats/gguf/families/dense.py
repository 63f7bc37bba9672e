"""Dense models of attention layers: Llama and its kin, Gemma."""

from collections.abc import Mapping
from statistics import NormalDist

from engine.formats.gguf.families.shared import (
    BIASES,
    FOUR_NORMS,
    GRANITE,
    HEAD_NORMS,
    LLAMA,
    NORMS_AROUND_ONE,
    PAIRED,
    Architecture,
)
from engine.formats.gguf.settings import FileSettings, Setting, has_tensor, layer_types, real, whole, window

_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": None}


def _query_scalar(size_of_27b: int) -> Setting:
    """The largest Gemma 2 and 3 scale scores by the channels of a head that the stream would have."""

    def scalar(settings: FileSettings) -> int:
        heads = settings.require("attention.head_count", int)
        hidden = settings.require("embedding_length", int)
        is_27b = settings.num_layers == size_of_27b
        return hidden // max(heads, 1) if is_27b else settings.require("attention.key_length", int)

    return scalar


def _sparsities(settings: FileSettings) -> list[float]:
    """Shares of gates that are cut off, from the distances in standard deviations."""
    distances = settings.require("activation_sparsity_scale", list)
    if not all(isinstance(distance, float) for distance in distances):
        raise settings.error("activation_sparsity_scale must be numbers")
    return [round(NormalDist().cdf(distance), 6) for distance in distances[: settings.num_layers]]


DENSE: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", BIASES, LLAMA, PAIRED),
    "qwen2": Architecture("Qwen2ForCausalLM", names=LLAMA),
    "qwen3": Architecture("Qwen3ForCausalLM", names={**LLAMA, **HEAD_NORMS}),
    "gemma": Architecture("GemmaForCausalLM", {"hidden_act": "gelu_pytorch_tanh"}, LLAMA, NORMS_AROUND_ONE),
    "gemma2": Architecture(
        "Gemma2ForCausalLM",
        {
            **_GEMMA,
            "sliding_window": window(4096),
            "layer_types": layer_types(2, 4096),
            "attn_logit_softcapping": real("attn_logit_softcapping", 50.0),
            "final_logit_softcapping": real("final_logit_softcapping", 30.0),
            "query_pre_attn_scalar": _query_scalar(46),
        },
        {**LLAMA, **FOUR_NORMS},
        NORMS_AROUND_ONE,
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        {
            **_GEMMA,
            "sliding_window": window(),
            "layer_types": layer_types(6),
            "final_logit_softcapping": lambda settings: settings.optional("final_logit_softcapping", float) or None,
            "query_pre_attn_scalar": _query_scalar(62),
        },
        {**LLAMA, **FOUR_NORMS, **HEAD_NORMS},
        NORMS_AROUND_ONE,
        window_base=10_000.0,
    ),
    "gemma3n": Architecture(
        "Gemma3nForCausalLM",
        {
            **_GEMMA,
            "intermediate_size": lambda settings: settings.by_layer("feed_forward_length"),
            "sliding_window": window(512),
            "layer_types": layer_types(5, 512),
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
            **LLAMA,
            **FOUR_NORMS,
            **HEAD_NORMS,
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
    "phi3": Architecture(
        "Phi3ForCausalLM",
        {"sliding_window": window()},
        {**LLAMA, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
        rotates_part=True,
    ),
    "smollm3": Architecture("SmolLM3ForCausalLM", {"no_rope_layer_interval": 4}, LLAMA, PAIRED),
    "granite": Architecture("GraniteForCausalLM", {**GRANITE, **BIASES}, LLAMA, PAIRED),
    "olmo2": Architecture(
        "Olmo2ForCausalLM",
        names={
            **LLAMA,
            **HEAD_NORMS,
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
    ),
    "glm4": Architecture(
        "Glm4ForCausalLM",
        {"attention_bias": has_tensor("blk.0.attn_q.bias")},
        {
            **LLAMA,
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
        LLAMA,
        PAIRED,
        rope={"llama_4_scaling_beta": real("attention.temperature_scale", 0.0)},
    ),
    "ernie4_5": Architecture("Ernie4_5ForCausalLM", {"use_bias": has_tensor("blk.0.attn_q.bias")}, LLAMA),
}
