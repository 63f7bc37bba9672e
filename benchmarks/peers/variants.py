"""The peers in the settings they are measured with, and the model files that each needs."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.models import make_checkpoint
from benchmarks.peers.environments import environments_folder, find_tcmalloc, has_environment, python_of

ADAPTERS = Path(__file__).parent / "adapters"
WORKLOADS = ("sharegpt", "alpaca", "single")


@dataclass(frozen=True, slots=True)
class Variant:
    """`limit`: only the first requests of a workload, where a whole one would take minutes. `files`: the kind of
    checkpoint that it reads, where that is not the 16-bit one. `is_usual`: measured where no peers are named.
    `bits_read`: of a weight of the layers and of the output head, in a step of one row: codes, scales, zero points."""

    environment: str
    adapter: str
    options: dict[str, Any] = field(default_factory=dict)
    workloads: tuple[str, ...] = WORKLOADS
    limit: int | None = None
    dtype: str = "bfloat16"
    files: str | None = None
    is_usual: bool = True
    bits_read: tuple[float, float] | None = None

    def model_folder(self, checkpoint: str) -> str:
        """The folder that the peer loads, for a 16-bit checkpoint."""
        return checkpoint if self.files is None else f"{checkpoint}-{self.files}"


VARIANTS: dict[str, Variant] = {
    "agon": Variant("agon", "with_agon.py", bits_read=(16, 16)),
    "agon-int8": Variant("agon", "with_agon.py", {"weights": "int8"}),
    # Scales and minima in 16 bits each, in groups of 64; the head has 8 bits in groups of 128.
    "agon-int4": Variant(
        "agon", "with_agon.py", {"weights": "int4"}, is_usual=False, bits_read=(5 + 32 / 64, 8 + 16 / 128)
    ),
    "agon-gptq": Variant("agon", "with_agon.py", files="gptq", is_usual=False, bits_read=(4 + 16 / 128, 16)),
    "vllm": Variant("vllm", "with_vllm.py"),
    "vllm-gptq": Variant("vllm", "with_vllm.py", files="gptq", is_usual=False),
    "openvino": Variant("openvino", "with_openvino.py", {"weights": "fp16"}),
    "openvino-int8": Variant("openvino", "with_openvino.py", {"weights": "int8"}),
    "openvino-int4": Variant("openvino", "with_openvino.py", {"weights": "int4"}, is_usual=False),
    # One stream only: batches over its low-level calls reached 73 tokens/s, which measures our loop more than the peer.
    "llama-cpp": Variant("llama-cpp", "with_llama_cpp.py", {"weights": "f16"}, ("single",)),
    "llama-cpp-bf16": Variant("llama-cpp", "with_llama_cpp.py", {"weights": "bf16"}, ("single",)),
    "llama-cpp-q8": Variant("llama-cpp", "with_llama_cpp.py", {"weights": "q8_0"}, ("single",)),
    "llama-server-q4": Variant("llama-server", "with_llama_server.py", {"weights": "q4_k_m"}, is_usual=False),
    "transformers-one": Variant("transformers", "with_transformers.py", {"mode": "one"}, limit=4),
    "transformers-static": Variant("transformers", "with_transformers.py", {"mode": "static"}, ("sharegpt", "alpaca")),
    "transformers-continuous": Variant(
        "transformers", "with_transformers.py", {"mode": "continuous"}, ("sharegpt", "alpaca")
    ),
}
GROUPS = {
    "transformers": ("transformers-one", "transformers-static", "transformers-continuous"),
    "4-bits": ("agon-int4", "agon-gptq", "openvino-int4", "llama-server-q4", "vllm-gptq"),
    "all": tuple(VARIANTS),
}


def expand(names: Sequence[str]) -> list[str]:
    """Replace groups by their members. Raises ValueError for a name that is neither a group nor a peer."""
    chosen = [member for name in names for member in GROUPS.get(name, (name,))]
    for name in chosen:
        if name not in VARIANTS:
            raise ValueError(f"there is no peer {name!r}; there are {', '.join((*VARIANTS, *GROUPS))}")
    return list(dict.fromkeys(chosen))


def available() -> list[str]:
    """The usual peers whose environments were made."""
    return [name for name, variant in VARIANTS.items() if variant.is_usual and has_environment(variant.environment)]


def with_options(texts: Sequence[str]) -> dict[str, Variant]:
    """VARIANTS, changed by PEER.NAME=VALUE texts (VALUE as JSON, else as text). Raises ValueError."""
    changed = dict(VARIANTS)
    for text in texts:
        place, has_value, value = text.partition("=")
        peer, has_name, name = place.partition(".")
        if not (has_value and has_name and name and peer in changed):
            raise ValueError(f"--set {text} must be PEER.NAME=VALUE with a PEER of {', '.join(VARIANTS)}")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        changed[peer] = replace(changed[peer], options={**changed[peer].options, name: parsed})
    return changed


def process_environment(variant: Variant, threads: int, cache_gib: int) -> dict[str, str]:
    """Environment variables with which the peer is fastest on that many threads."""
    settings = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}
    settings["OMP_NUM_THREADS"] = str(threads)
    if variant.environment == "agon":
        root = str(ADAPTERS.parent.parent.parent)
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    if variant.environment == "vllm":
        folder = environments_folder() / "vllm"
        libraries = [find_tcmalloc(folder), folder / "lib" / "libiomp5.so"]
        settings["LD_PRELOAD"] = ":".join(str(path) for path in libraries if path is not None and path.exists())
        settings["VLLM_CPU_KVCACHE_SPACE"] = str(cache_gib)
        settings["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        settings["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        settings["VLLM_NO_USAGE_STATS"] = "1"
        settings["VLLM_LOGGING_LEVEL"] = "WARNING"
        settings["VLLM_CACHE_ROOT"] = str(folder / "cache")
    return {**os.environ, **settings}


def prepare(variant: Variant, model: str, models: Path) -> None:
    """Make the model files that are missing: the checkpoint, and what the peer reads instead of it."""
    checkpoint = make_checkpoint(model, models)
    if variant.environment == "openvino":
        _export_openvino(checkpoint, variant.options["weights"])
    elif variant.environment == "llama-cpp":
        _convert_gguf(checkpoint, variant.options["weights"], variant.environment)
    elif variant.environment == "llama-server":
        _quantise_gguf(checkpoint, variant.options["weights"], variant.environment)
    elif variant.files == "gptq":
        _make_gptq(checkpoint, Path(variant.model_folder(str(checkpoint))))


def _export_openvino(checkpoint: Path, weights: str) -> None:
    folder = checkpoint.with_name(f"{checkpoint.name}-openvino-{weights}")
    if (folder / "openvino_model.xml").is_file():
        return
    tool = python_of("openvino").with_name("optimum-cli")
    command = [str(tool), "export", "openvino", "-m", str(checkpoint), "--task", "text-generation-with-past"]
    subprocess.run([*command, "--weight-format", weights, str(folder)], check=True)


def _convert_gguf(checkpoint: Path, weights: str, environment: str) -> Path:
    target = checkpoint.with_name(f"{checkpoint.name}-{weights}.gguf")
    if not target.is_file():
        script = ADAPTERS / "convert_gguf.py"
        subprocess.run([str(python_of(environment)), str(script), str(checkpoint), str(target), weights], check=True)
    return target


def _quantise_gguf(checkpoint: Path, weights: str, environment: str) -> None:
    target = checkpoint.with_name(f"{checkpoint.name}-{weights}.gguf")
    if target.is_file():
        return
    source = _convert_gguf(checkpoint, "bf16", environment)
    tool, partial = python_of(environment).with_name("llama-quantize"), target.with_suffix(".partial")
    subprocess.run([str(tool), str(source), str(partial), weights.upper()], check=True)
    partial.replace(target)


def _make_gptq(checkpoint: Path, target: Path) -> None:
    if not (target / "model.safetensors").is_file():
        script = ADAPTERS / "make_gptq.py"
        subprocess.run([sys.executable, str(script), str(checkpoint), str(target)], check=True)
