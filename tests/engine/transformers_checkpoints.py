"""Tiny random checkpoints of architectures that Agon has no code for, so that transformers' own code runs them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tests.engine.checkpoints import CONTEXT, VOCAB_SIZE, WINDOW, TinyModel, write_tokenizer

_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
#: Sizes with two key/value heads, which most architectures take.
GROUPED = {**_SIZES, "num_key_value_heads": 2, "head_dim": 16}
_EXPERTS = {
    **GROUPED,
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}

#: name -> (class of transformers, settings of its config)
TRANSFORMERS_VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "apertus": ("ApertusForCausalLM", GROUPED),
    "biogpt": ("BioGptForCausalLM", {**_SIZES, "pad_token_id": 1}),  # learned positions, scaled embeddings
    "gpt-bigcode": ("GPTBigCodeForCausalLM", _SIZES),  # one key/value head, projections in one matrix
    "nemotron": ("NemotronForCausalLM", {**GROUPED, "partial_rotary_factor": 0.5}),
    "persimmon": ("PersimmonForCausalLM", {**_SIZES, "num_attention_heads": 3}),
    "vaultgemma": (  # windows, soft caps on scores and logits
        "VaultGemmaForCausalLM",
        {
            **GROUPED,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 2.0,
        },
    ),
    "granite-swa": (  # sinks, windows
        "GraniteSWAForCausalLM",
        {
            **GROUPED,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "attention_multiplier": 0.25,
        },
    ),
    "dots1": ("Dots1ForCausalLM", {**_EXPERTS, "sliding_window": None}),  # experts are stored one by one
    "youtu": (  # values have fewer channels than keys
        "YoutuForCausalLM",
        {
            **_SIZES,
            "num_key_value_heads": 6,
            "kv_lora_rank": 16,
            "q_lora_rank": None,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
        },
    ),
}


def save_transformers_variant(name: str, folder: Path) -> TinyModel:
    """Write a checkpoint of a variant."""
    import transformers

    architecture, settings = TRANSFORMERS_VARIANTS[name]
    model_class = getattr(transformers, architecture)
    return save_randomised(model_class, model_class.config_class(**settings), folder)


def save_randomised(model_class: Any, config: Any, folder: Path) -> TinyModel:
    """Write a checkpoint: seeded weights, norm scales other than one, biases other than zero."""
    torch.manual_seed(20)
    model = model_class(config)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return TinyModel(folder)
