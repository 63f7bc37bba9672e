"""Folders of tiny checkpoints with quantised layers, and the same ones with the dequantised weights."""

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.parallel.group import Group
from engine.runner import load_runner
from engine.runner.load import LoadedModel
from tests.engine.formats import packers
from tests.engine.formats.packers import Packer
from tests.engine.stepper import random_prompt

PROMPT = random_prompt(9, 30)
CPU = torch.device("cpu")
#: Stays as it is in every checkpoint here.
KEPT = "model.layers.1.mlp.up_proj"


def compressed(**weights: object) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", **weights}}},
        "ignore": ["lm_head", KEPT],
    }


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": True}
BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
BY_GROUP = {"strategy": "group", "group_size": 16}
FORMATS: Mapping[str, tuple[dict[str, Any], Packer]] = {
    "gptq": (GPTQ, packers.gptq),
    "gptq by column": ({**GPTQ, "group_size": -1}, partial(packers.gptq, group=-1)),
    "gptq asymmetric": ({**GPTQ, "sym": False}, partial(packers.gptq, symmetric=False)),
    "gptq v2": ({**GPTQ, "checkpoint_format": "gptq_v2"}, partial(packers.gptq, symmetric=False, v2=True)),
    "gptq act-order": ({**GPTQ, "desc_act": True}, partial(packers.gptq, symmetric=False, shuffled=True)),
    "gptq 8 bits": ({**GPTQ, "bits": 8}, partial(packers.gptq, bits=8)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"}, packers.awq),
    "packed 4 bits": (compressed(**BY_GROUP), packers.pack_quantized),
    "packed 4 bits by channel": (compressed(strategy="channel"), partial(packers.pack_quantized, group=-1)),
    "packed 4 bits asymmetric": (
        compressed(**BY_GROUP, symmetric=False),
        partial(packers.pack_quantized, symmetric=False),
    ),
    "packed 4 bits in order of activation": (
        compressed(**BY_GROUP, actorder="group"),
        partial(packers.pack_quantized, shuffled=True),
    ),
    "packed 8 bits": (compressed(**BY_GROUP, num_bits=8), partial(packers.pack_quantized, bits=8)),
    "int8": ({**compressed(num_bits=8, strategy="channel"), "format": "int-quantized"}, packers.int_quantized),
    "int8 with one scale": (
        {**compressed(num_bits=8, strategy="tensor"), "format": "int-quantized"},
        partial(packers.int_quantized, one_scale=True),
    ),
    "float by channel": (
        {**compressed(num_bits=8, type="float", strategy="channel"), "format": "float-quantized"},
        packers.fp8_by_output,
    ),
    "bitsandbytes nf4": (BITSANDBYTES, packers.bitsandbytes_4bit),
    "bitsandbytes nf4 nested": (BITSANDBYTES, partial(packers.bitsandbytes_4bit, nested=True, nested_block=16)),
    "bitsandbytes nf4 across rows": (BITSANDBYTES, partial(packers.bitsandbytes_4bit, block=128)),
    "bitsandbytes fp4": (
        {**BITSANDBYTES, "bnb_4bit_quant_type": "fp4"},
        partial(packers.bitsandbytes_4bit, kind="fp4"),
    ),
    "bitsandbytes 8 bits": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        packers.bitsandbytes_int8,
    ),
    "fp8": (FP8, partial(packers.fp8, block=None, scale_name="weight_scale")),
    "fp8 by block": (
        {**FP8, "weight_block_size": [32, 32]},
        partial(packers.fp8, block=(32, 32), scale_name="weight_scale_inv"),
    ),
}


def write(source: Path, folder: Path, settings: dict[str, Any] | None, pack: Packer) -> None:
    """The checkpoint with the linear weights of its layers packed; settings None: with their dequantised values."""
    shutil.copytree(source, folder)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if ".layers." not in name or tensor.ndim != 2 or layer == KEPT:
            tensors[name] = tensor
            continue
        parts, weights = pack(tensor)
        if settings is None:
            tensors[name] = weights.contiguous()
        else:
            tensors |= {f"{layer}.{end}": part.contiguous() for end, part in parts.items()}
    save_file(tensors, folder / "model.safetensors")
    if settings is not None:
        change_config(folder, quantization_config=settings)


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def load(folder: Path, group: Group | None = None, **settings: object) -> LoadedModel:
    config = EngineConfig(str(folder), kv_cache_bytes=1 << 20, max_running=2, num_threads=1, **settings)  # type: ignore[arg-type]
    return load_runner(config, group)
