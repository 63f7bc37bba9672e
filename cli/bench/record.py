"""The JSON document of a benchmark: machine, commit, settings and results."""

import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import cli

PERCENTS = (50, 95, 99)


def machine() -> dict[str, Any]:
    """The facts on which it depends if two results may be compared."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("agon", "torch", "transformers")},
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit() -> str | None:
    """The commit of the running source tree, with a plus sign if it has uncommitted changes; None without git."""
    root = Path(cli.__file__).parent.parent
    head = _git(root, "rev-parse", "--short", "HEAD")
    if head is None:
        return None
    return f"{head}+" if _git(root, "status", "--porcelain", "--untracked-files=no") else head


def document(kind: str, settings: dict[str, Any], rows: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The JSON document of one benchmark, with time, commit and machine."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = {"kind": kind, "when": when, "commit": commit(), "machine": machine(), "settings": settings}
    return {**head, "rows": list(rows), **more}


def write(path: Path | None, result: dict[str, Any]) -> None:
    """Write a document to `path`, or to standard output. A file is whole whenever the process ends."""
    text = json.dumps(result, indent=2)
    if path is None:
        print(text)
    else:
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank; nan without values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(root: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
