"""Adapters merged into a checkpoint's weights by hand: what a model with an adapter must compute."""

import json
import math
import re
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def merge(model: Path, adapter: Path, folder: Path) -> Path:
    """A copy of the checkpoint with W + scale up down in place of W; with magnitudes m, m (W + scale up down) / its
    rows' lengths (DoRA). Returns the folder."""
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    own = load_file(adapter / "adapter_model.safetensors")
    config = json.loads((adapter / "adapter_config.json").read_text())
    for name, down in own.items():
        if not name.endswith("lora_A.weight"):
            continue
        layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        rank, alpha = len(down), config["lora_alpha"]
        for key, value in config.get("alpha_pattern", {}).items():
            if re.fullmatch(rf"(.*\.)?{key}", layer):
                alpha = value
        scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
        changed = weights[f"{layer}.weight"].double()
        changed += scale * own[name.replace("lora_A", "lora_B")].double() @ down.double()
        magnitudes = own.get(f"base_model.model.{layer}.lora_magnitude_vector")
        if magnitudes is not None:
            changed *= (magnitudes.double() / changed.norm(dim=1))[:, None]
        weights[f"{layer}.weight"] = changed.float()
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder
