"""The device and the versions that a result depends on.

`python -m benchmarks.gpu.machine cuda | cpu FILE` writes them, and fails where that device is not there."""

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "triton", "numpy", "transformers", "tokenizers", "safetensors", "pytest", "hypothesis")


def machine(device: str) -> dict[str, Any]:
    """device: cuda or cpu."""
    versions = {"python": sys.version.split()[0], **{name: _version(name) for name in _PACKAGES}}
    if device == "cpu":
        return {"name": "cpu", "torch": torch.__version__, "versions": versions}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "versions": versions,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main(device: str, path: Path) -> None:
    """Write the facts to the file, and print them."""
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device")
    text = json.dumps(machine(device), indent=2)
    path.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
