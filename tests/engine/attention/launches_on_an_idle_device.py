"""Compares launches that are repeated with those that the layer itself would make, argument by argument, on a device
that computes nothing. A script: Triton's interpreter must be off, and nothing may have imported Triton before.

Prints JSON: by model, how many layers were compared, how many of them repeated launches, and the differences."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import driver

from benchmarks.models import GEMMA2_TINY
from benchmarks.steps.idle_device import IdleDevice
from benchmarks.steps.load import MODEL, Engine
from engine.attention.device_backend import DeviceBackend, StepMemory
from engine.attention.device_layout import DeviceLayout
from engine.attention.rotation import Rotation

#: (compiled kernel, grid and stream, arguments with addresses in place of tensors)
launches: list[tuple[int, tuple[Any, ...], tuple[Any, ...]]] = []


class NotingLauncher(CudaLauncher):  # type: ignore[misc]
    def __call__(self, *arguments: Any) -> None:
        numbers = tuple(a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments[9:])
        launches.append((id(self), arguments[:4], numbers))
        super().__call__(*arguments)


def noted() -> list[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    found = list(launches)
    launches.clear()
    return found


def compare(counts: dict[str, Any]) -> None:
    """From now on every layer's launches are compared with those that it makes without keeping any."""
    attend = DeviceBackend.attend

    def compared(
        self: DeviceBackend,
        layer_id: int,
        qkv: torch.Tensor,
        output: torch.Tensor,
        rotation: Rotation | None,
        head_norms: Any,
        layout: DeviceLayout,
        memory: StepMemory,
    ) -> None:
        launches.clear()
        kept = memory.kept
        num_kept = len(kept)
        attend(self, layer_id, qkv, output, rotation, head_norms, layout, memory)
        ours = noted()
        layer = self._layers[layer_id]
        self._launch(layer, qkv, output, rotation, head_norms, layout)
        counts["compared"] += 1
        counts["repeated"] += len(kept) == num_kept and any(kept.values())
        counts["differences"] += ours != noted()

    DeviceBackend.attend = compared  # type: ignore[method-assign]


def main() -> None:
    device = IdleDevice(warms_up=False)
    driver.active.launcher_cls = NotingLauncher
    attend = DeviceBackend.attend
    results = {}
    few_layers = {"num_hidden_layers": 4}
    cases: dict[str, dict[str, Any]] = {
        "qwen3": {"model": {**MODEL, **few_layers}},
        "qwen3, int8": {"model": {**MODEL, **few_layers}, "kv_dtype": "int8"},
        "gemma2": {"model": {**GEMMA2_TINY, **few_layers}},
    }
    for name, case in cases.items():
        counts = results[name] = {"compared": 0, "repeated": 0, "differences": 0}
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(Path(folder), device, 4, **case)
            compare(counts)
            engine.measure("mixed", 3, "sampled", 2)
            DeviceBackend.attend = attend  # type: ignore[method-assign]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
