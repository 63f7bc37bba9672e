"""One run of the GPU benchmark: a process for each model and for the peers, which write into one document.

A process whose device context is lost ends, and another one measures what is left of its part: an illegal access of one
kernel costs one row.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.gpu.plan import PEERS, Plan
from cli.bench import record

_PACKAGES = ("torch", "triton", "numpy", "transformers", "tokenizers", "safetensors", "pytest", "hypothesis")
_TRIES = 3  #: processes for one part
_OUT_OF_TIME = 124
_END_S = 15.0  #: beyond its budget, until a process is killed: its last row, and closing
UNFINISHED = "its process ended"  #: why a row has failed that is being measured
CONTEXT_LOST = 9  #: exit status of a process whose device refuses every further call


def measure(
    plan: Plan, parts: Sequence[str], path: Path, budget_s: float, arguments: Sequence[str], *, appends: bool
) -> int:
    """Measure parts of the plan, each by `python -m benchmarks.gpu ARGUMENTS --part NAME`, which write to `path`.

    appends: rows of other parts that stand there stay. Returns the number of rows of our engine that failed.
    """
    deadline = time.monotonic() + budget_s
    settings = {"arguments": list(arguments), "budget_s": budget_s, "plan": asdict(plan)}
    document = record.document("gpu", settings, [])  # the commit it started with
    if appends and path.is_file():
        before = read(path)
        document["rows"] = [row for row in before["rows"] if part_of(row) not in parts]
        document |= {name: before[name] for name in ("device", "limits") if name in before}
    record.write(path, document)
    for part in parts:
        for _ in range(_TRIES):
            left = deadline - time.monotonic()
            if left <= 0:
                _note(path, part, {"skipped": "the time was over"})
                break
            command = [*arguments, "--json", str(path), "--part", part, "--budget-s", f"{left:.1f}"]
            status = _run([sys.executable, "-m", "benchmarks.gpu", *command], left + _END_S)
            if status == 0:
                break
            # A part of which nothing could be measured would fail again.
            if not _note(path, part, {"failed": f"{UNFINISHED} with status {status}"}) or status == _OUT_OF_TIME:
                break
    rows = read(path)["rows"]
    return sum("failed" in row for row in rows if row["system"] == "agon" and part_of(row) in parts)


def _run(command: Sequence[str], timeout_s: float) -> int:
    """The exit status."""
    try:
        return subprocess.run(command, check=False, timeout=timeout_s).returncode
    except subprocess.TimeoutExpired:
        return _OUT_OF_TIME


def _note(path: Path, part: str, outcome: dict[str, str]) -> bool:
    """Write why the process of a part has ended, in the row that it was measuring or in one for the whole part. Returns
    whether the part has other rows."""
    document = read(path)
    rows = [row for row in document["rows"] if part_of(row) == part]
    if not rows:
        head = {"work": "load", "system": part if part == PEERS else "agon", "model": part}
        document["rows"].append({**head, **outcome})
    for row in rows:
        if row.get("failed") == UNFINISHED:
            row |= outcome
    print(f"{part}: {' '.join(outcome.values())}", file=sys.stderr, flush=True)
    record.write(path, document)
    return len(rows) > 1


def part_of(row: dict[str, Any]) -> str:
    """The part of a plan that a row belongs to."""
    return str(row["model"]) if row["system"] == "agon" else PEERS


def read(path: Path) -> dict[str, Any]:
    """A document of results."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def measure_part(
    plan: Plan, part: str, device: str, path: Path, budget_s: float, given: tuple[float | None, float | None]
) -> int:
    """Measure a part in this process and add its rows to the document at `path`. Returns the exit status.

    given: limits of the device that need no measurement, bytes a second and operations a second.
    """
    from benchmarks.gpu.rows import ContextLost, Row, Rows
    from benchmarks.kernels.limits import Limits

    deadline = time.monotonic() + budget_s
    document = read(path)
    if "limits" not in document:
        document |= {"device": facts(device), "limits": asdict(_limits(device, *given))}

    def save(rows: list[Row]) -> None:
        record.write(path, {**document, "rows": rows})

    rows = Rows(
        plan,
        device,
        Limits(**document["limits"]),
        deadline - time.monotonic(),
        _print,
        save,
        document["device"].get("memory_bytes", math.inf),
        document["rows"],
    )
    try:
        rows.measure(part)
    except ContextLost:
        return CONTEXT_LOST
    return 0


def is_context_lost() -> bool:
    """Whether the CUDA device refuses every further call of this process."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def facts(device: str) -> dict[str, Any]:
    """The device and the versions that a result depends on. device: cuda or cpu."""
    import torch

    versions = {"python": sys.version.split()[0], **{name: _version(name) for name in _PACKAGES}}
    if device == "cpu":
        return {"name": "cpu", "versions": versions}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "cuda": torch.version.cuda,
        "versions": versions,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _limits(device: str, bytes_per_s: float | None, flops: float | None) -> Any:
    """The given limits; missing ones are measured on this device (copies and matrix products)."""
    import torch

    from benchmarks.gpu.ours import release
    from benchmarks.kernels.limits import Limits, measure_limits
    from benchmarks.kernels.timing import clock_of

    if bytes_per_s is None or flops is None:
        where = torch.device(device)
        measured = measure_limits(clock_of(where), where)
        release()
        _print(
            f"this device copies {measured.bytes_per_s / 1e12:.2f} TB/s, multiplies {measured.flops / 1e12:.0f} TFLOP/s"
        )
        bytes_per_s, flops = bytes_per_s or measured.bytes_per_s, flops or measured.flops
    return Limits(bytes_per_s, flops)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
