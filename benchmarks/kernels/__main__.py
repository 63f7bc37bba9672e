"""Each Triton kernel on this CUDA device: time, share of what the device copies or multiplies at, and its goal.

python -m benchmarks.kernels [--kernel TEXT] [--json FILE]    measures
python -m benchmarks.kernels tune                             measures tile sizes and writes engine/kernels/tuned
python -m benchmarks.kernels report                           machine code of all configurations: needs no device

Results are written after every row, and nothing begins after --budget-s seconds.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from cli.bench import record

RESULT = Path(__file__).parent.parent / "results" / "kernels.json"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", choices=("measure", "tune", "report"), default="measure")
    parser.add_argument("--kernel", default="", help="only those whose name holds this text")
    parser.add_argument("--json", type=Path, default=RESULT, help="where measurements go")
    parser.add_argument("--budget-s", type=float, default=480.0)
    chosen = parser.parse_args(arguments)
    if chosen.task == "report":
        from benchmarks.kernels.report import write_report

        sys.exit(write_report())
    if not torch.cuda.is_available():
        sys.exit("There is no CUDA device here: kernels can be neither measured nor tuned.")
    deadline = time.monotonic() + chosen.budget_s
    with torch.inference_mode():
        _tune(deadline) if chosen.task == "tune" else _measure(chosen.kernel, chosen.json, deadline)


def _measure(kernel: str, path: Path, deadline: float) -> None:
    from benchmarks.kernels.case import Case
    from benchmarks.kernels.cases import all_cases
    from benchmarks.kernels.limits import measure_limits
    from benchmarks.kernels.timing import Clock

    device = torch.device("cuda")
    document = record.document("kernels", {}, [], device=torch.cuda.get_device_name())
    clock = Clock(device)
    limits = measure_limits(clock, device)
    print(limits, file=sys.stderr, flush=True)

    def row(case: Case) -> dict[str, Any]:
        microseconds = clock.microseconds(case.make(device))
        peer = None if case.peer is None else round(clock.microseconds(case.peer(device)), 2)
        bound_us = case.bound_us(limits)
        return {
            "bytes": case.num_bytes,
            "flops": case.flops,
            "us": round(microseconds, 2),
            "bound_us": round(bound_us, 2),
            "share_of_bound": round(bound_us / microseconds, 4),
            "goal": asdict(case.goal),
            "is_goal_met": case.goal.is_met(microseconds, bound_us),
            "torch_us": peer,
        }

    rows: list[dict[str, Any]] = []
    for case in all_cases(is_quick=False):
        if kernel not in case.kernel:
            continue
        rows.append({"kernel": case.kernel, "shape": case.shape})
        if time.monotonic() > deadline:
            rows[-1]["skipped"] = "the time was over"
        else:
            try:
                rows[-1] |= row(case)
            except Exception as error:  # the other kernels may still work
                traceback.print_exc()
                rows[-1]["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(_line(rows[-1]), flush=True)
        record.write(path, {**document, "limits": asdict(limits), "rows": rows})


def _line(row: dict[str, Any]) -> str:
    if "us" not in row:
        return f"{row['kernel'] + ', ' + row['shape']:70} {row.get('failed') or row['skipped']}"
    peer = "" if row["torch_us"] is None else f", torch {row['torch_us']:.1f} us"
    goal = "met" if row["is_goal_met"] else "missed"
    share = 100 * row["share_of_bound"]
    return f"{row['kernel'] + ', ' + row['shape']:70} {row['us']:9.1f} us, {share:5.1f} % of the bound, {goal}{peer}"


def _tune(deadline: float) -> None:
    from benchmarks.kernels.timing import Clock
    from benchmarks.kernels.tune import sweep
    from engine.kernels.gpu.tuning import TABLES

    device = torch.device("cuda")
    major, minor = torch.cuda.get_device_capability(device)
    architecture = 10 * major + minor
    document = record.document("tuned", {}, [], device=torch.cuda.get_device_name())
    kept = {name: document[name] for name in ("when", "commit", "device")}
    entries: list[dict[str, Any]] = []
    for entry in sweep(Clock(device), architecture, device, deadline):
        entries.append(entry)
        record.write(TABLES / f"sm_{architecture}.json", {**kept, "entries": entries})
    print(f"{len(entries)} classes have tiles that are faster than the formula's", flush=True)


if __name__ == "__main__":
    main()
