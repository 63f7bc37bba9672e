"""The runs of the benchmark of kernels: a row for each case, or a table of tiles, written as soon as it is known."""

import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.kernels import tune as tuning
from benchmarks.kernels import tune_products, tune_quantised
from benchmarks.kernels.case import Case
from benchmarks.kernels.cases import all_cases
from benchmarks.kernels.limits import Limits, measure_limits
from benchmarks.kernels.timing import Clock, WallClock, clock_of
from cli.bench import record
from engine.kernels.gpu.tuning import TABLES
from engine.kernels.hardware import num_multiprocessors

Row = dict[str, Any]

_QUICK_S = 1.0  #: of trying tiles


def measure(device: torch.device, kernel: str, path: Path, deadline: float, *, is_quick: bool) -> int:
    """Measure the kernels whose name holds `kernel`, or one of several texts with commas, and write the rows to `path`.
    Returns the number of rows that failed; rows that would begin after the deadline (time.monotonic) say so and have
    not failed."""
    clock = clock_of(device)
    limits = measure_limits(clock, device)
    settings = {"device": device.type, "quick": is_quick}
    document = record.document("kernels", settings, [], device=_name(device), limits=asdict(limits))
    print(limits, file=sys.stderr, flush=True)
    rows: list[Row] = []
    for case in all_cases(is_quick=is_quick):
        if not any(part in case.kernel for part in kernel.split(",")):
            continue
        rows.append({"kernel": case.kernel, "shape": case.shape})
        if time.monotonic() > deadline:
            rows[-1]["skipped"] = "the time was over"
        else:
            try:
                rows[-1] |= _measured(case, clock, limits, device)
            except Exception as error:  # the other kernels may still work
                traceback.print_exc()
                rows[-1]["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(_line(rows[-1]), flush=True)
        record.write(path, {**document, "rows": rows})
    return sum("failed" in row for row in rows)


def _measured(case: Case, clock: Clock | WallClock, limits: Limits, device: torch.device) -> Row:
    call = case.make(device)
    microseconds, bound_us = clock.microseconds(call), case.bound_us(limits)
    warm = clock.warm_microseconds(call) if case.is_warm else None
    peer = None if case.peer is None else round(clock.microseconds(case.peer(device)), 2)
    goal = case.goal
    in_step = microseconds if warm is None or goal is None or goal.microseconds is None else warm
    return {
        "bytes": case.num_bytes,
        "flops": case.flops,
        "us": round(microseconds, 2),
        "warm_us": None if warm is None else round(warm, 2),
        "bound_us": round(bound_us, 2),
        "share_of_bound": round(bound_us / microseconds, 4),
        "goal": None if goal is None else asdict(goal),
        "is_goal_met": None if goal is None else goal.is_met(in_step, bound_us),
        "torch_us": peer,
    }


def _line(row: Row) -> str:
    what = f"{row['kernel'] + ', ' + row['shape']:70}"
    if "us" not in row:
        return f"{what} {row.get('failed') or row['skipped']}"
    warm = "" if row["warm_us"] is None else f", {row['warm_us']:.1f} us with a warm cache"
    peer = "" if row["torch_us"] is None else f", torch {row['torch_us']:.1f} us"
    goal = {None: "", True: ", met", False: ", missed"}[row["is_goal_met"]]
    return f"{what} {row['us']:9.1f} us, {100 * row['share_of_bound']:5.1f} % of the bound{goal}{warm}{peer}"


def tune(device: torch.device, tables: Path | None, deadline: float, *, is_quick: bool) -> None:
    """Tiles by measurement, into sm_NN.json of the folder `tables` (None: where the engine looks), on a CPU into
    interpreter.json. Written after each class; a table without entries says that the formula has the best tiles."""
    architecture, name = 90, "interpreter.json"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        architecture = 10 * major + minor
        name = f"sm_{architecture}.json"
    path = (tables or TABLES) / name
    document = record.document("tuned", {}, [], device=_name(device))
    kept = {key: document[key] for key in ("when", "commit", "device")}
    entries: list[Row] = []
    clock, classes = clock_of(device), tuning.CLASSES
    if is_quick:
        classes, deadline = tuning.QUICK, min(deadline, time.monotonic() + _QUICK_S)
    half = (time.monotonic() + deadline) / 2  # where the time is short, products get some of it, too
    for entry in tuning.sweep(clock, architecture, device, half, classes):
        entries.append(entry)
        record.write(path, {**kept, "entries": entries})
    print(f"{len(entries)} classes have tiles that are faster than the formula's", flush=True)
    weights = tune_products.weights_of(is_quick=is_quick)
    for entry in tune_products.sweep(clock, num_multiprocessors(device), device, deadline, weights):
        entries.append(entry)
        record.write(path, {**kept, "entries": entries})
    codes = tune_quantised.weights_of(is_quick=is_quick)
    for entry in tune_quantised.sweep(clock, num_multiprocessors(device), device, deadline, codes):
        entries.append(entry)
        record.write(path, {**kept, "entries": entries})
    record.write(path, {**kept, "entries": entries})


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
