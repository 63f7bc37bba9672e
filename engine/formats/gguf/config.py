"""The config.json of a GGUF file's model, from its settings."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from engine.errors import CheckpointError
from engine.formats.gguf.file import GgufFile
from engine.models.config_reader import ConfigReader

#: By the file's architecture: the name in config.json.
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
#: The tensor of factors by which llama3 scaling divides frequencies.
ROPE_FACTORS = "rope_freqs.weight"
#: Factors of Llama 3.1 and 3.2; the other parameters are the same in both.
_LLAMA3_FACTORS = (8.0, 32.0)
_LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config_of(file: GgufFile) -> dict[str, Any]:
    """The values of config.json. Raises CheckpointError for models that are not served."""
    settings = ConfigReader(file.settings, file.path.name)
    name = settings.require("general.architecture", str)
    if name not in ARCHITECTURES:
        served = ", ".join(ARCHITECTURES)
        raise CheckpointError(f"{file.path.name}: GGUF files of architecture {name!r} are not served, only {served}")
    if settings.get(f"{name}.expert_count", int, 0):
        raise CheckpointError(f"{file.path.name}: GGUF files with experts are not served")
    heads = settings.require(f"{name}.attention.head_count", int)
    hidden = settings.require(f"{name}.embedding_length", int)
    if heads < 1 or hidden < 1:
        raise CheckpointError(f"{file.path.name}: {heads} heads and {hidden} channels are no model")
    head_dim = settings.get(f"{name}.attention.key_length", int, hidden // heads)
    settings.expect(f"{name}.attention.value_length", head_dim)
    settings.expect(f"{name}.rope.dimension_count", head_dim)
    settings.expect(f"{name}.attention.sliding_window", 0)
    base = settings.get(f"{name}.rope.freq_base", float, 10000.0)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{file.path.name} has no matrix token_embd.weight")
    return {
        "architectures": [ARCHITECTURES[name]],
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": settings.require(f"{name}.feed_forward_length", int),
        "num_hidden_layers": settings.require(f"{name}.block_count", int),
        "num_attention_heads": heads,
        "num_key_value_heads": settings.get(f"{name}.attention.head_count_kv", int, heads),
        "head_dim": head_dim,
        "max_position_embeddings": settings.require(f"{name}.context_length", int),
        "rms_norm_eps": settings.require(f"{name}.attention.layer_norm_rms_epsilon", float),
        "hidden_act": "silu",
        "rope_parameters": {"rope_theta": base, **_scaling(file, settings, name, base, head_dim)},
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "dtype": "bfloat16",
        "eos_token_id": [
            file.settings[key]
            for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
            if key in file.settings
        ]
        or None,
    }


def _scaling(file: GgufFile, settings: ConfigReader, name: str, base: float, head_dim: int) -> Mapping[str, Any]:
    """How positions are scaled, as in config.json."""
    kind = settings.get(f"{name}.rope.scaling.type", str, "none")
    if ROPE_FACTORS in file.tensors:
        return _llama3(file, base, head_dim)
    match kind:
        case "none":
            return {"rope_type": "default"}
        case "linear":
            return {"rope_type": "linear", "factor": settings.require(f"{name}.rope.scaling.factor", float)}
    raise CheckpointError(f"{file.path.name}: positions scaled by {kind!r} are not served in GGUF files")


def _llama3(file: GgufFile, base: float, head_dim: int) -> Mapping[str, Any]:
    if file.tensors[ROPE_FACTORS].block.dtype != torch.float32:
        raise CheckpointError(f"{file.path.name}: {ROPE_FACTORS} is not of float32")
    found = torch.from_numpy(file.rows(ROPE_FACTORS).copy()).view(torch.float32)
    frequencies = base ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    turns = _LLAMA3["original_max_position_embeddings"] * frequencies / (2 * math.pi)  # type: ignore[operator]
    smooth = ((turns - 1) / 3).clamp(0, 1)
    for factor in _LLAMA3_FACTORS:
        wanted = 1 / ((1 - smooth) / factor + smooth)
        if len(found) == len(wanted) and torch.allclose(found.double(), wanted, rtol=1e-3):
            return {**_LLAMA3, "factor": factor}
    raise CheckpointError(f"{file.path.name}: the factors in {ROPE_FACTORS} are not those of Llama 3.1 or 3.2")
