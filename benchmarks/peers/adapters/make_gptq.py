"""A checkpoint of benchmarks/models.py as a GPTQ folder: 4 bits, symmetric, groups of 128, rounded to nearest.

make_gptq.py CHECKPOINT TARGET. Runs in any environment with torch and safetensors. Embeddings, output head and norms
stay as they are. Weights are random, so nothing is gained by calibration, and speed does not depend on it.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

BITS, GROUP, ZERO = 4, 128, 8


def convert(checkpoint: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    with safe_open(checkpoint / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118  # not a dict
            values = file.get_tensor(name)
            if "_proj.weight" in name:
                tensors.update({f"{name.removesuffix('weight')}{part}": t for part, t in _quantised(values).items()})
            else:
                tensors[name] = values
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "gptq",
        "bits": BITS,
        "group_size": GROUP,
        "desc_act": False,
        "sym": True,
        "lm_head": False,
        "checkpoint_format": "gptq",
    }
    (target / "config.json").write_text(json.dumps(config, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(checkpoint / name, target / name)
    partial = target / "model.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(target / "model.safetensors")


def _quantised(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """weight [O, I] -> qweight [I / 8, O], qzeros [G, O / 8], scales [G, O], g_idx [I], as AutoGPTQ writes them."""
    outputs, inputs = weight.shape
    groups = weight.float().view(outputs, -1, GROUP)
    scales = (groups.abs().amax(dim=2) / (ZERO - 0.5)).half()
    codes = (groups / scales.float().clamp(min=1e-12)[:, :, None]).round().add(ZERO).clamp(0, 15)
    zeros = torch.full((scales.shape[1], outputs), ZERO - 1)  # this version of the format stores one less
    return {
        "qweight": _words(codes.view(outputs, inputs).int()).T.contiguous(),
        "qzeros": _words(zeros.int()),
        "scales": scales.T.contiguous(),
        "g_idx": torch.arange(inputs, dtype=torch.int32) // GROUP,
    }


def _words(codes: torch.Tensor) -> torch.Tensor:
    """codes [R, C] -> words [R, C / 8], the first code lowest."""
    shifts = torch.arange(0, 32, BITS)
    words = (codes.long().view(len(codes), -1, 32 // BITS) << shifts).sum(dim=2)
    return torch.where(words >= 2**31, words - 2**32, words).int()


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
