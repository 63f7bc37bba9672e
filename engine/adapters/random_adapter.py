"""Writes an adapter with random matrices for a model's folder: for tests and benchmarks, and to try adapters without
training one.

    python -m engine.adapters.random_adapter MODEL FOLDER --rank 16 --seed 1
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engine.layers.adapter_points import AdapterPoints
from engine.layers.weights import ShapesOnly
from engine.loader import find_model_folder, read_config
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of

#: The projections of attention and feed-forward parts, as most architectures call them.
USUAL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapter_points_of(model: str) -> AdapterPoints:
    """The linear layers of a model's folder that adapters can change, without values."""
    settings = ConfigReader(read_config(find_model_folder(model)))
    shapes = ShapesOnly()
    architecture_of(settings).build(settings, shapes)
    assert shapes.adapter_points is not None
    return shapes.adapter_points


def write_random_adapter(
    model: str,
    folder: Path,
    *,
    rank: int = 16,
    seed: int = 0,
    size: float = 0.3,
    targets: Sequence[str] | None = USUAL_TARGETS,
    ranks: Mapping[str, int] | None = None,
    has_magnitudes: bool = False,
    **config: Any,
) -> None:
    """size: of an update beside a typical output of its layer. targets: last parts of layers' names; None: all. ranks:
    other ranks by the last part. has_magnitudes: a magnitude vector for each layer (DoRA). config: further fields of
    adapter_config.json."""
    generator = torch.Generator().manual_seed(seed)
    alpha = float(config.get("lora_alpha", 2 * rank))
    tensors: dict[str, torch.Tensor] = {}
    for point in adapter_points_of(model).points:
        for part in point.parts:
            target = part.name.rsplit(".", 1)[-1]
            name = f"base_model.model.{part.name}"
            if (targets is not None and target not in targets) or f"{name}.lora_A.weight" in tensors:
                continue
            own = (ranks or {}).get(target, rank)
            down = torch.randn(own, point.num_inputs, generator=generator) / point.num_inputs**0.5
            up = torch.randn(part.num_outputs, own, generator=generator) * size / own**0.5 * own / alpha
            tensors |= {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
            if has_magnitudes:
                tensors[f"{name}.lora_magnitude_vector"] = 0.5 + torch.rand(part.num_outputs, generator=generator)
    found = sorted({name.rsplit(".", 3)[1] for name in tensors if name.endswith("lora_A.weight")})
    fields = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(model),
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": found,
        "use_dora": has_magnitudes,
        "rank_pattern": dict(ranks or {}),
        **config,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(fields, indent=2))
    save_file(tensors, str(folder / "adapter_model.safetensors"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write an adapter with random matrices")
    parser.add_argument("model", help="folder of the base, or a hub id")
    parser.add_argument("folder", type=Path, help="where the adapter is written")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=float, default=0.3, help="of an update beside a typical output")
    parser.add_argument("--dora", action="store_true", help="with magnitude vectors")
    asked = parser.parse_args()
    write_random_adapter(
        asked.model, asked.folder, rank=asked.rank, seed=asked.seed, size=asked.size, has_magnitudes=asked.dora
    )


if __name__ == "__main__":
    main()
