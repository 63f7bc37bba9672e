"""Shapes of recurrent, hybrid and expert models, small enough for two cores, with weights drawn by transformers.

mamba, mamba2, qwen3.5-0.8b and granite-1b-a400m are eight layers of published models (mamba-130m, mamba2-130m,
Qwen3.5-0.8B, granite-3.1-1b-a400m) with a smaller vocabulary; the others are like those of their families.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import SEED, write_tokenizer

MAX_TOKENS = 16384

_COMMON: dict[str, Any] = {
    "vocab_size": 8192,
    "max_position_embeddings": MAX_TOKENS,
    "initializer_range": 0.02,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_HEADS: dict[str, Any] = {"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64}
_SMALL: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 320}
_SMALL_HEADS: dict[str, Any] = {
    **_SMALL,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's class and settings."""

    architecture: str
    settings: Mapping[str, Any]
    small: Mapping[str, Any]  #: settings for --quick, in place of those of the same name

    def vocab_size(self, *, is_quick: bool) -> int:
        """Ids that prompts may hold."""
        size: int = {**_COMMON, **(self.small if is_quick else {})}["vocab_size"]
        return size

    def make(self, folder: Path, *, is_quick: bool) -> Path:
        """Write a tokenizer, and bfloat16 weights, random from a seed."""
        import transformers

        model_class: Any = getattr(transformers, self.architecture)
        changes = self.small if is_quick else {}
        torch.manual_seed(SEED)
        model = model_class(model_class.config_class(**{**_COMMON, **self.settings, **changes}))
        for name, parameter in model.named_parameters():
            if name.endswith("linear_attn.A_log"):
                parameter.data -= 4.0  # as drawn, heads of a delta net forget within a token
        model.to(torch.bfloat16).save_pretrained(folder)
        write_tokenizer(folder, self.vocab_size(is_quick=is_quick))
        return folder


SHAPES: Mapping[str, Shape] = {
    "mamba": Shape(
        "MambaForCausalLM",
        {"hidden_size": 768, "num_hidden_layers": 8, "state_size": 16},
        _SMALL,
    ),
    "mamba2": Shape(
        "Mamba2ForCausalLM",
        {
            "hidden_size": 768,
            "num_hidden_layers": 8,
            "num_heads": 24,
            "head_dim": 64,
            "n_groups": 1,
            "state_size": 128,
        },
        {**_SMALL, "num_heads": 8, "head_dim": 16, "state_size": 16},
    ),
    "qwen3.5": Shape(
        "Qwen3_5ForCausalLM",
        {
            "hidden_size": 1024,
            "intermediate_size": 2560,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "linear_num_key_heads": 8,
            "linear_num_value_heads": 8,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "layer_types": 2 * (3 * ["linear_attention"] + ["full_attention"]),
        },
        {
            **_SMALL_HEADS,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "qwen3.5-0.8b": Shape(
        "Qwen3_5ForCausalLM",
        {
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "layer_types": 2 * (3 * ["linear_attention"] + ["full_attention"]),
        },
        {
            **_SMALL_HEADS,
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "jamba": Shape(
        "JambaForCausalLM",
        {
            **_HEADS,
            "hidden_size": 768,
            "intermediate_size": 1536,
            "num_hidden_layers": 8,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "mamba_d_state": 16,
        },
        {**_SMALL_HEADS, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4},
    ),
    "qwen3-moe": Shape(
        "Qwen3MoeForCausalLM",
        {
            **_HEADS,
            "hidden_size": 768,
            "intermediate_size": 1536,
            "moe_intermediate_size": 384,
            "num_hidden_layers": 8,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "norm_topk_prob": True,
        },
        {**_SMALL_HEADS, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2},
    ),
    "granite-1b-a400m": Shape(
        "GraniteMoeForCausalLM",
        {
            "hidden_size": 1024,
            "intermediate_size": 512,
            "num_hidden_layers": 8,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "num_local_experts": 32,
            "num_experts_per_tok": 8,
            "embedding_multiplier": 12.0,
            "logits_scaling": 6.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.015625,
        },
        {**_SMALL_HEADS, "intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "granite-4": Shape(
        "GraniteMoeHybridForCausalLM",
        {
            **_HEADS,
            "hidden_size": 768,
            "intermediate_size": 384,
            "shared_intermediate_size": 1024,
            "num_hidden_layers": 8,
            "layer_types": 2 * (3 * ["mamba"] + ["attention"]),
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "position_embedding_type": "nope",
            "mamba_n_heads": 24,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
        },
        {
            **_SMALL_HEADS,
            "shared_intermediate_size": 64,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
            "mamba_d_state": 16,
        },
    ),
    "gemma-4": Shape(
        "Gemma4ForCausalLM",
        {
            **_HEADS,
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 10,
            "layer_types": 2 * (4 * ["sliding_attention"] + ["full_attention"]),
            "sliding_window": 512,
            "global_head_dim": 128,
            "num_kv_shared_layers": 4,
            "hidden_size_per_layer_input": 64,
            "vocab_size_per_layer_input": _COMMON["vocab_size"],
        },
        {
            **_SMALL_HEADS,
            "num_hidden_layers": 4,
            "layer_types": 2 * ["sliding_attention", "full_attention"],
            "sliding_window": 32,
            "global_head_dim": 32,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": _SMALL["vocab_size"],
        },
    ),
}
