"""End-to-end speed on one GPU, in under eight minutes: decode, prefill and whole loads beside the device's bounds, our
goals for an H200 and transformers in the same run; then each kernel alone.

python -m benchmarks.gpu [--json FILE] [--quick] [--device cuda | cpu] [--budget-s SECONDS] [--verbose]

Without --quick: Qwen3-0.6B, Llama-3.2-1B and Llama-3.1-8B with random weights. On cpu everything is tiny, which only
checks that the benchmark runs. The result is written after every row: a run that is cut off leaves what it has
measured.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.ours import release
from benchmarks.gpu.plan import MINIATURE, QUICK, WHOLE
from benchmarks.gpu.rows import Rows
from benchmarks.gpu.shapes import Limits
from cli.bench import record

RESULT = Path(__file__).parent.parent / "results" / "gpu.json"
_KERNELS = "benchmarks.kernels"
_KERNELS_S = 80.0  #: of the budget, for the kernels alone
_START_S = 10.0  #: of a process that measures them


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None, help=f"default: {RESULT.name} of the results, on cuda")
    parser.add_argument("--quick", action="store_true", help="two models, few points, no kernels alone")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--budget-s", type=float, default=450.0, help="rows that would begin too late are left out")
    parser.add_argument("--terabytes-per-s", type=float, help="of the device's memory; default: measured by a copy")
    parser.add_argument("--teraflops", type=float, help="of products in bfloat16; default: measured")
    parser.add_argument("--verbose", action="store_true", help="the engine's log too: memory, and each graph")
    chosen = parser.parse_args(arguments)
    if chosen.verbose:
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d ms %(name)s: %(message)s")
    started = time.monotonic()
    is_cuda = chosen.device == "cuda"
    if is_cuda and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --device cpu --quick shows that everything runs")
    plan = (QUICK if chosen.quick else WHOLE) if is_cuda else MINIATURE
    limits = _limits(chosen.terabytes_per_s, chosen.teraflops) if is_cuda else None
    settings = {"device": chosen.device, "quick": chosen.quick, "budget_s": chosen.budget_s}
    settings["limits"] = None if limits is None else asdict(limits)
    document = record.document("gpu", settings, [], device=_device(chosen.device))  # the commit it started with
    path = chosen.json or (RESULT if is_cuda else None)
    has_kernels = is_cuda and not chosen.quick

    def seconds_left() -> float:
        return float(chosen.budget_s - (time.monotonic() - started))

    def save(rows: list[dict[str, Any]]) -> None:
        if path is not None:
            record.write(path, {**document, "rows": rows, "kernels": None})

    rows_s = seconds_left() - (_KERNELS_S if has_kernels else 0.0)
    rows = Rows(plan, chosen.device, limits, rows_s, _print, save).measure()
    kernels = _kernels(seconds_left()) if has_kernels else None
    record.write(path, {**document, "rows": rows, "kernels": kernels})


def _limits(terabytes_per_s: float | None, teraflops: float | None) -> Limits:
    """The limits given on the command line; missing ones are measured on this device (copies and matrix products)."""
    if terabytes_per_s is None or teraflops is None:
        from benchmarks.kernels.limits import measure_limits
        from benchmarks.kernels.timing import Clock

        device = torch.device("cuda")
        measured = measure_limits(Clock(device), device)
        release()
        _print(
            f"this device copies {measured.bytes_per_s / 1e12:.2f} TB/s, multiplies {measured.flops / 1e12:.0f} TFLOP/s"
        )
        terabytes_per_s = terabytes_per_s or measured.bytes_per_s / 1e12
        teraflops = teraflops or measured.flops / 1e12
    return Limits(terabytes_per_s * 1e12, teraflops * 1e12)


def _device(name: str) -> dict[str, Any]:
    if name == "cpu":
        return {"name": "cpu", "torch": torch.__version__}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
    }


def _kernels(timeout_s: float) -> Any:
    """The document of the benchmark of single kernels, in a process of its own; it holds the rows that were finished in
    time."""
    if timeout_s < 2 * _START_S:
        return {"failed": "the time was over"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.json"
        command = [sys.executable, "-m", _KERNELS, "--json", str(path), "--budget-s", str(timeout_s - _START_S)]
        try:
            done = subprocess.run(command, stdout=sys.stderr, check=False, timeout=timeout_s)
            failed = {"failed": f"exit status {done.returncode}"} if done.returncode else {}
        except subprocess.TimeoutExpired:
            failed = {"failed": f"not done after {timeout_s:.0f} s"}
        return (json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}) | failed


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
