"""GGUF files of tiny checkpoints: tensors, settings and tokenizer under the names of llama.cpp."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from engine.text.tokenizer import Tokenizer
from tests.engine.checkpoints import save
from tests.engine.formats import gguf_writer as writer

SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64, "num_hidden_layers": 2}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    **{f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")},
}
#: As in Q4_K_M files, values have more bits than queries and keys.
KINDS = {
    "token_embd": writer.q8_0,
    "output": writer.q6_k,
    "attn_v": writer.q6_k,
    "attn_output": writer.q5_k,
    "ffn_gate": writer.q4_0,
    "ffn_up": writer.q4_0,
    "ffn_down": writer.q8_0,
}


def name_of(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.{ending}"
    return f"{NAMES[stem]}.{ending}"


def paired(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """As llama.cpp stores queries and keys of Llama."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def settings_of(config: dict[str, Any], architecture: str) -> dict[str, object]:
    alphabet = list(json.loads(Tokenizer.of_bytes()._backend.to_str())["model"]["vocab"])
    tokens = sorted(alphabet) + [f"<unused {i}>" for i in range(config["vocab_size"] - len(alphabet))]
    return {
        "general.architecture": architecture,
        **{
            f"{architecture}.{name}": config[key]
            for name, key in {
                "block_count": "num_hidden_layers",
                "context_length": "max_position_embeddings",
                "embedding_length": "hidden_size",
                "feed_forward_length": "intermediate_size",
                "attention.head_count": "num_attention_heads",
                "attention.head_count_kv": "num_key_value_heads",
                "attention.key_length": "head_dim",
                "attention.layer_norm_rms_epsilon": "rms_norm_eps",
            }.items()
            if config.get(key) is not None
        },
        f"{architecture}.rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 300,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }


def write(
    folder: Path,
    variant: str,
    architecture: str,
    *,
    is_plain: bool = False,
    sizes: Mapping[str, object] = SIZES,
    changes: Mapping[str, object] | None = None,
) -> tuple[Path, Path]:
    """A GGUF file, and a folder with its dequantised weights. is_plain: all tensors in float32, which takes no time.
    sizes: settings of the config; changes: settings of the file to replace."""
    plain = folder / "plain"
    save(variant, plain, **sizes)
    config = json.loads((plain / "config.json").read_text())
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    weights = load_file(plain / "model.safetensors")
    for name, tensor in weights.items():
        theirs = name_of(name)
        kind = theirs.split(".")[-2]
        values = tensor.numpy()
        if architecture == "llama" and kind in heads:
            values = paired(values, heads[kind])
        tensors[theirs] = values, writer.f32 if is_plain or tensor.ndim < 2 else KINDS.get(kind, writer.q4_k)
    file = folder / "model.gguf"
    back = writer.write(file, {**settings_of(config, architecture), **(changes or {})}, tensors)
    for name in weights:
        theirs = name_of(name)
        values, kind = back[theirs], theirs.split(".")[-2]
        if architecture == "llama" and kind in heads:
            values = values.reshape(heads[kind], -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        weights[name] = torch.from_numpy(np.ascontiguousarray(values))
    save_file(weights, plain / "model.safetensors")
    return file, plain
