"""Tiny checkpoints as GGUF files: names of tensors from the gguf package, settings and changes as llama.cpp's converter
makes them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray
from safetensors.torch import load_file

from engine.text.tokenizer import Tokenizer

Floats = NDArray[np.float32]
#: A tensor of the file as it is stored: bytes, and their type.
Pack = Callable[[str, Floats], tuple[NDArray[Any], GGMLQuantizationType]]

#: What the converter takes from config.json, whatever the architecture.
_SETTINGS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "sliding_window": "attention.sliding_window",
    "num_local_experts": "expert_count",
    "num_experts": "expert_count",
    "n_routed_experts": "expert_count",
    "moe_num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_k": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
    "moe_shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "moe_num_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "first_k_dense_replace": "leading_dense_block_count",
    "num_dense_layers": "leading_dense_block_count",
    "moe_layer_start_index": "leading_dense_block_count",
    "moe_layer_interval": "interleave_moe_layer_step",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "conv_L_cache": "shortconv.l_cache",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "mamba_d_conv": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "mamba_d_state": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "mamba_n_groups": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "mamba_n_heads": "ssm.time_step_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank",
    "v_head_dim": "attention.value_length_mla",
    "qk_rope_head_dim": "rope.dimension_count",
    "altup_num_inputs": "altup.num_inputs",
    "altup_active_idx": "altup.active_idx",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
    "num_kv_shared_layers": "attention.shared_kv_layers",
}
_PAIRED = ("llama", "smollm3", "granite", "granitemoe", "granitehybrid", "mistral3")
_AROUND_ONE = ("gemma", "gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe")


def convert(folder: Path, architecture: str, file: Path, pack: Pack) -> None:
    """Write the file. pack: how a tensor is stored, from its name in the file and its values."""
    config = json.loads((folder / "config.json").read_text())
    config = {**config, **config.get("text_config", {})}
    writer = gguf.GGUFWriter(str(file), architecture)
    for key, value in _settings(config, architecture).items():
        _add(writer, key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}", value)
    for name, tensor in _tensors(config, architecture, load_file(folder / "model.safetensors")):
        data, kind = pack(name, np.ascontiguousarray(tensor.float().numpy()))
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: Any, key: str, value: object) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)


def _settings(config: Mapping[str, Any], architecture: str) -> dict[str, object]:
    found = {theirs: config[key] for key, theirs in _SETTINGS.items() if config.get(key) is not None}
    found |= {"block_count": config["num_hidden_layers"], **_rope(config)}
    if "head_dim" in config:
        found["attention.value_length"] = config["head_dim"]
    kinds = config.get("layer_types") or []
    match architecture:
        case "gpt-oss":
            found["expert_feed_forward_length"] = config["intermediate_size"]
        case "llama4":
            found["expert_feed_forward_length"] = config["intermediate_size"]
            found["feed_forward_length"] = config["intermediate_size_mlp"]
        case "glm4" | "glm4moe" | "phi3" | "qwen35" | "qwen35moe" | "qwen3next":
            share = config["rope_parameters"].get("partial_rotary_factor", 1.0)
            head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
            found["rope.dimension_count"] = int(share * head_dim)
        case "deepseek2":
            found["attention.key_length_mla"] = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
            found["attention.key_length"] = config["kv_lora_rank"] + config["qk_rope_head_dim"]
            found["attention.head_count_kv"] = 1
            found.pop("attention.value_length", None)
            if config["architectures"] == ["DeepseekV3ForCausalLM"]:
                found["expert_gating_func"] = 2
        case "lfm2" | "lfm2moe" | "granitehybrid":
            heads = config["num_key_value_heads"]
            found["attention.head_count_kv"] = [
                heads if kind in ("full_attention", "attention") else 0 for kind in kinds
            ]
        case "gemma3n":
            found["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in kinds]
            shares = config["activation_sparsity_pattern"]
            found["activation_sparsity_scale"] = [
                NormalDist().inv_cdf(share) if share else -float("inf") for share in shares
            ]
    if architecture in ("qwen35", "qwen35moe", "qwen3next"):
        found["ssm.inner_size"] = config["linear_value_head_dim"] * config["linear_num_value_heads"]
        found["attention.recurrent_layers"] = [kind == "linear_attention" for kind in kinds]
    if architecture == "granitehybrid":
        found |= {"ssm.inner_size": config["mamba_expand"] * config["hidden_size"], "rope.scaling.finetuned": False}
    if not config.get("sliding_window"):
        found.pop("attention.sliding_window", None)
    return {**found, **_tokenizer(config["vocab_size"])}


def _rope(config: Mapping[str, Any]) -> dict[str, object]:
    rope = config.get("rope_parameters") or {}
    full = rope.get("full_attention", rope)
    found: dict[str, object] = {"rope.freq_base": float(full.get("rope_theta", 10000.0))}
    if "sliding_attention" in rope:
        found["rope.freq_base_swa"] = float(rope["sliding_attention"].get("rope_theta", 10000.0))
    if full.get("rope_type") in ("linear", "yarn"):
        found |= {"rope.scaling.type": full["rope_type"], "rope.scaling.factor": full["factor"]}
    if full.get("rope_type") == "yarn":
        found["rope.scaling.original_context_length"] = full["original_max_position_embeddings"]
        found |= {f"rope.scaling.yarn_{key}": full[key] for key in ("beta_fast", "beta_slow") if key in full}
    return found


def _tokenizer(vocab_size: int) -> dict[str, object]:
    alphabet = sorted(json.loads(Tokenizer.of_bytes()._backend.to_str())["model"]["vocab"])
    tokens = [*alphabet, "ab", *(f"<unused {index}>" for index in range(vocab_size - len(alphabet) - 1))]
    values = {"model": "gpt2", "pre": "default", "tokens": tokens, "token_type": [1] * len(tokens)}
    return {f"tokenizer.ggml.{key}": value for key, value in {**values, "merges": ["a b"]}.items()}


def _tensors(
    config: Mapping[str, Any], architecture: str, tensors: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Under their names in the file, changed."""
    (kind,) = (kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for name, tensor in _stacked(config, architecture, tensors):
        for part, values in _changed(config, architecture, name, tensor):
            theirs = names.get_name(part, try_suffixes=(".weight", ".bias"))
            assert theirs is not None, part
            yield theirs, values


def _stacked(
    config: Mapping[str, Any], architecture: str, tensors: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The matrices of experts, and of other lists, in one tensor each."""
    stacks: dict[str, list[torch.Tensor]] = {}
    for name in sorted(tensors, key=lambda name: [int(part) if part.isdigit() else -1 for part in name.split(".")]):
        match = re.fullmatch(r"(.*\.experts|model\.altup_\w+)\.(\d+)\.(.+)", name)
        if match is None:
            yield name, tensors[name]
        else:
            merged = f"{match[1]}.{match[3]}".replace("block_sparse_moe.experts", "feed_forward.experts")
            stacks.setdefault(merged.removeprefix("model.") if "feed_forward.experts" in merged else merged, [])
            stacks[merged.removeprefix("model.") if "feed_forward.experts" in merged else merged].append(tensors[name])
    for name, parts in stacks.items():
        yield name, torch.stack(parts)


def _changed(
    config: Mapping[str, Any], architecture: str, name: str, tensor: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    if architecture in _AROUND_ONE and name.endswith("norm.weight") and "linear_attn" not in name:
        tensor = tensor + 1
    if architecture in _PAIRED and ".q_proj." in name:
        tensor = _paired(tensor, config["num_attention_heads"])
    if architecture in _PAIRED and ".k_proj." in name:
        tensor = _paired(tensor, config["num_key_value_heads"])
    if name.endswith("A_log"):
        tensor = -tensor.exp()
    if "linear_attn" in name and architecture != "qwen3next":
        tensor = _tiled(config, name, tensor)
    if name.endswith(("conv1d.weight", "conv.conv.weight")):
        tensor = tensor.squeeze(1)
    if ".mamba." in name and name.endswith(("A_log", ".D")):
        tensor = tensor[:, None]
    if name.endswith("mamba.norm.weight"):
        tensor = tensor.view(config["mamba_n_groups"], -1)
    if name.endswith("shared_expert_gate.weight"):
        tensor = tensor.flatten()
    name = name.replace(".dt_bias", ".dt_proj.bias")
    name = re.sub(r"(sinks|_scale)$", r"\1.weight", name)
    name = re.sub(r"(e_score_correction|expert)_bias$", r"\1_bias", name)
    name = name.replace("e_score_correction_bias", "e_score_correction.bias")
    name = name.replace(".expert_bias", ".expert_bias.bias")
    if "kv_b_proj" in name:
        heads, plain = config["num_attention_heads"], config["qk_nope_head_dim"]
        keys, values = tensor.unflatten(0, (heads, -1)).split([plain, config["v_head_dim"]], dim=1)
        yield name.replace("kv_b_proj", "k_b_proj"), keys.transpose(1, 2)
        yield name.replace("kv_b_proj", "v_b_proj"), values
    elif "experts.gate_up_proj" in name:  # gpt-oss and Llama 4 in 16 bits
        ending = ".bias" if name.endswith("_bias") else ".weight"
        stem, is_mixed = name.partition("gate_up_proj")[0], architecture == "gpt-oss"
        values = tensor if ending == ".bias" else tensor.transpose(1, 2)
        half = values.shape[1] // 2
        gate, up = (values[:, ::2], values[:, 1::2]) if is_mixed else (values[:, :half], values[:, half:])
        yield f"{stem}gate_proj{ending}", gate
        yield f"{stem}up_proj{ending}", up
    elif "experts.down_proj" in name and architecture in ("gpt-oss", "llama4"):
        ending = ".bias" if name.endswith("_bias") else ".weight"
        values = tensor if ending == ".bias" else tensor.transpose(1, 2)
        yield name.removesuffix("_bias") + ending, values
    elif "input_linear" in name:  # Granite: gates, then ups
        gate, up = tensor.chunk(2, dim=-2)
        is_shared = "shared_mlp" in name
        layer = ".".join(name.split(".")[:3])
        for part, values in (("gate", gate), ("up", up)):
            stem = f"mlp.shared_expert.{part}_proj" if is_shared else f"mlp.experts.{part}_proj"
            yield f"{layer}.{stem}.weight", values
    elif "in_proj_qkvz" in name:
        yield from _delta_projections(config, name, tensor)
    else:
        yield name, tensor


def _paired(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    pairs: torch.Tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    return pairs


def _tiled(config: Mapping[str, Any], name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Value heads by their place among those of a key head."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    channels = config["linear_value_head_dim"]

    def reorder(part: torch.Tensor, size: int) -> torch.Tensor:
        tiles: torch.Tensor = part.unflatten(0, (keys, values // keys, size)).transpose(0, 1).flatten(0, 2)
        return tiles

    if "in_proj_qkv" in name or "conv1d" in name:
        first = 2 * keys * config["linear_key_head_dim"]
        return torch.cat((tensor[:first], reorder(tensor[first:], channels)))
    if "in_proj_z" in name:
        return reorder(tensor, channels)
    if "out_proj" in name:
        return reorder(tensor.T, channels).T
    return reorder(tensor, 1) if name.endswith(("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight")) else tensor


def _delta_projections(
    config: Mapping[str, Any], name: str, tensor: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """Qwen3-Next has those of each key head together, the file all queries, keys and values, and apart from them the
    gates."""
    keys, key_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    width = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    query, key, value, gate = tensor.unflatten(0, (keys, -1)).split([key_dim, key_dim, width, width], dim=1)
    joined = torch.cat([part.flatten(0, 1) for part in (query, key, value)])
    layer = ".".join(name.split(".")[:3])
    yield f"{layer}.linear_attn.in_proj_qkv.weight", joined
    yield f"{layer}.linear_attn.in_proj_z.weight", gate.flatten(0, 1)
