"""The models whose launches are compiled and inspected: real shapes, few layers, and how each is served."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.shapes import LLAMA_8B, QWEN3_600M
from benchmarks.models import GPT2_124M

_DENSE: dict[str, Any] = {"num_hidden_layers": 2, "tie_word_embeddings": False, "rms_norm_eps": 1e-6}
_QWEN3 = {**QWEN3_600M, "num_hidden_layers": 2}
_QWEN3_30B = {
    **_DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "max_position_embeddings": 40960,
    "rope_theta": 1e6,
}
_GEMMA2_9B = {
    **_DENSE,
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "vocab_size": 256000,
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 8192,
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_theta": 10000.0,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
}
_GPT_OSS_20B = {  # with a quarter of its experts, which are copied when they are loaded
    **_DENSE,
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_local_experts": 8,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "swiglu_limit": 7.0,
    "attention_bias": True,
}
_QWEN35_4B = {
    **_DENSE,
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 248320,
    "hidden_size": 2560,
    "intermediate_size": 9216,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
    "partial_rotary_factor": 0.25,
    "rope_theta": 1e7,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attn_output_gate": True,
}
_MAMBA_28B = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "vocab_size": 50280,
    "hidden_size": 2560,
    "state_size": 16,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
}
_MAMBA2_27B = {
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "vocab_size": 50288,
    "hidden_size": 2560,
    "num_hidden_layers": 2,
    "num_heads": 80,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 1,
    "expand": 2,
    "conv_kernel": 4,
    "chunk_size": 256,
    "layer_norm_epsilon": 1e-5,
    "rms_norm": True,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}
_KIMI_48B = {  # likewise
    **_DENSE,
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "vocab_size": 163840,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": True,
    "linear_attn_config": {
        "kda_layers": [1],
        "full_attn_layers": [2],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
    "first_k_dense_replace": 1,
    "num_experts": 64,
    "num_experts_per_token": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 1024,
    "routed_scaling_factor": 2.446,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1048576,
}
_DEEPSEEK_V2_LITE = {
    **_DENSE,
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "vocab_size": 102400,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "n_shared_experts": 2,
    "n_routed_experts": 64,
    "routed_scaling_factor": 1.0,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
    "topk_method": "greedy",
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "norm_topk_prob": False,
    "scoring_func": "softmax",
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rope_theta": 10000.0,
}


@dataclass(frozen=True, slots=True)
class Served:
    """A model and how it is served."""

    config: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)  #: of EngineConfig
    form: str | None = None  #: of its linear weights: a key of recorded_weights.FORMS; None: they have 16 bits
    #: Steps as large as on an H200, and grammars; others are served as on a device of 16 GB, which takes less time.
    has_all_steps: bool = False
    least_architecture: int = 80


def _qwen3(form: str | None = None, **settings: Any) -> Served:
    """What changes with settings and formats is recorded for the model that takes least time."""
    least = 89 if settings.get("kv_dtype") == "fp8" else 80
    return Served(_QWEN3, settings, form, least_architecture=least)


SERVED = {
    "Qwen3-0.6B": Served(_QWEN3, {"draft": "ngram", "swap_bytes": 1 << 28}, has_all_steps=True),
    "Llama-3.1-8B": Served({**LLAMA_8B, "num_hidden_layers": 2}, has_all_steps=True),
    "Qwen3-0.6B with adapters": _qwen3(max_adapters=2),
    "Qwen3-0.6B, pages in int8": _qwen3(kv_dtype="int8"),
    "Qwen3-0.6B, pages in fp8": _qwen3(kv_dtype="fp8"),
    "Qwen3-0.6B in float32": _qwen3(dtype="float32"),
    "Qwen3-0.6B in int4": _qwen3(weights="int4"),
    "Qwen3-0.6B in int8": _qwen3(weights="int8"),
    **{f"Qwen3-0.6B in {form}": _qwen3(form) for form in ("AWQ", "GPTQ", "FP8", "Q6_K")},
    "Qwen3-30B-A3B": Served(_QWEN3_30B),
    "Qwen3-30B-A3B in FP8": Served({**_QWEN3_30B, "num_experts": 16}, form="FP8"),
    "gpt-oss-20b": Served(_GPT_OSS_20B),
    "gpt-oss-20b in MXFP4": Served({**_GPT_OSS_20B, "num_local_experts": 4}, form="MXFP4"),
    "GPT-2 124M": Served({**GPT2_124M, "num_hidden_layers": 2, "n_layer": 2}),
    "Gemma-2-9B": Served(_GEMMA2_9B),
    "Qwen3.5-4B": Served(_QWEN35_4B),
    "Mamba-2.8B": Served(_MAMBA_28B),
    "Mamba-2 2.7B": Served(_MAMBA2_27B),
    "Kimi-Linear-48B": Served(_KIMI_48B),
    "DeepSeek-V2-Lite": Served(_DEEPSEEK_V2_LITE),
}
