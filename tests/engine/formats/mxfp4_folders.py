"""Folders of tiny checkpoints whose experts are stacks, in MXFP4 and in their dequantised weights."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.engine.checkpoints import save
from tests.engine.formats import packers
from tests.engine.formats.quantised_folders import change_config

SETTINGS = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
WEIGHTS = "model.safetensors"
Tensors = dict[str, torch.Tensor]


def write(root: Path, variant: str, **sizes: int) -> Path:
    """Writes "packed" and "plain": the same experts in MXFP4 and in float32."""
    tensors = stacked(load_file(save(variant, root / "plain", **sizes).folder / WEIGHTS))
    save(variant, root / "packed", **sizes)
    packed: Tensors = {}
    for name, tensor in tensors.items():
        if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            packed[name] = tensor
            continue
        is_transposed = variant == "gpt-oss"
        parts, weights = packers.mxfp4(tensor.transpose(1, 2) if is_transposed else tensor)
        packed |= {f"{name}_{end}": part for end, part in parts.items()}
        tensors[name] = (weights.transpose(1, 2) if is_transposed else weights).contiguous()
    save_file(tensors, root / "plain" / WEIGHTS)
    save_file(packed, root / "packed" / WEIGHTS)
    change_config(root / "packed", quantization_config=SETTINGS)
    return root


def stacked(tensors: Tensors) -> Tensors:
    """One tensor for all experts of a layer, as in files of Qwen3.5, where transformers writes one for each."""
    result = {name: tensor for name, tensor in tensors.items() if ".experts.0." not in name}
    for first in [name for name in tensors if name.endswith(".experts.0.down_proj.weight")]:
        experts = first.removesuffix(".0.down_proj.weight")
        count = sum(name.startswith(f"{experts}.") and name.endswith(".down_proj.weight") for name in tensors)
        gates, ups, downs = (
            torch.stack([tensors[f"{experts}.{index}.{part}_proj.weight"] for index in range(count)])
            for part in ("gate", "up", "down")
        )
        result = {name: tensor for name, tensor in result.items() if not name.startswith(f"{experts}.")}
        result |= {f"{experts}.gate_up_proj": torch.cat((gates, ups), dim=1), f"{experts}.down_proj": downs}
    return result
