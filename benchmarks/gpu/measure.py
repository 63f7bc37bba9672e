"""One run of the GPU benchmark: the document that holds its rows, the device's limits, each kernel alone at the end."""

import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.machine import machine
from benchmarks.gpu.ours import release
from benchmarks.gpu.plan import Plan
from benchmarks.gpu.rows import Row, Rows
from benchmarks.kernels.limits import Limits, measure_limits
from benchmarks.kernels.timing import clock_of
from cli.bench import record

_KERNELS = "benchmarks.kernels"
_KERNELS_S = 80.0  #: of the budget, for the kernels alone
_START_S = 10.0  #: of a process that measures them


def measure(
    plan: Plan,
    device: str,
    path: Path | None,
    budget_s: float,
    given: tuple[float | None, float | None],
    *,
    has_kernels: bool,
) -> int:
    """Measure the plan and write the rows to `path` (None: all of them to standard output, at the end).

    given: limits of the device that need no measurement, bytes a second and operations a second. has_kernels: then
    every kernel alone. Returns the number of rows of our engine that failed.
    """
    started = time.monotonic()
    limits = _limits(device, *given)
    settings = {"device": device, "budget_s": budget_s, "limits": asdict(limits), "plan": asdict(plan)}
    document = record.document("gpu", settings, [], device=machine(device))  # the commit it started with

    def save(rows: list[Row]) -> None:
        if path is not None:
            record.write(path, {**document, "rows": rows, "kernels": None})

    def seconds_left() -> float:
        return budget_s - (time.monotonic() - started)

    rows_s = seconds_left() - (_KERNELS_S if has_kernels else 0.0)
    memory_bytes = document["device"].get("memory_bytes", math.inf)
    rows = Rows(plan, device, limits, rows_s, _print, save, memory_bytes).measure()
    kernels = _kernels(seconds_left()) if has_kernels else None
    record.write(path, {**document, "rows": rows, "kernels": kernels})
    return sum("failed" in row for row in rows if row["system"] == "agon")


def _limits(device: str, bytes_per_s: float | None, flops: float | None) -> Limits:
    """The given limits; missing ones are measured on this device (copies and matrix products)."""
    if bytes_per_s is None or flops is None:
        where = torch.device(device)
        measured = measure_limits(clock_of(where), where)
        release()
        _print(
            f"this device copies {measured.bytes_per_s / 1e12:.2f} TB/s, multiplies {measured.flops / 1e12:.0f} TFLOP/s"
        )
        bytes_per_s, flops = bytes_per_s or measured.bytes_per_s, flops or measured.flops
    return Limits(bytes_per_s, flops)


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
