"""What a step costs the CPU while the model runs on a GPU: microseconds of the engine and of its runner, without a GPU.

python -m benchmarks.steps [--rows 1,16,64,256] [--quick] [--against FOLDER] [--json FILE]
python -m benchmarks.steps --nodes [--rows 1,16,17,32,64,256]

The device computes nothing (idle_device.py), so that the host's work alone counts. Then each step takes 2 ms of the
device, and a second thread always has work: what the engine's thread loses to it, by the interpreter's switch interval.
--against: the tree of another commit, measured in turns with this one, each in processes of its own.
--nodes: nothing is timed; prints the nodes of the graphs that such steps replay, by kind, for two models.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"  # before Triton is imported

from benchmarks.steps.idle_device import IdleDevice, Launches
from benchmarks.steps.load import DEVICE_S, LAYERS, MODELS, PARAMS, PROMPT_TOKENS, Engine, Kind, busy_thread
from cli.bench import record

RESULT = Path(__file__).parent.parent / "results" / "steps.json"
KINDS: tuple[Kind, ...] = ("decode", "mixed")
#: Python's own interval, and shorter ones.
INTERVALS_S = (0.005, 0.0005, 0.0001, 0.00002)
_ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,16,64,256")
    parser.add_argument("--steps", type=int, default=150, help="at each point")
    parser.add_argument("--quick", action="store_true", help="few points: to see that everything runs")
    parser.add_argument("--nodes", action="store_true", help="count the nodes of graphs, and time nothing")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="a checkout of another commit")
    parser.add_argument("--json", type=Path, help=f"default: {RESULT.name} beside the other results")
    chosen = parser.parse_args(arguments)
    if chosen.against is not None:
        compare(chosen.against.resolve(), sys.argv[1:] if arguments is None else list(arguments), chosen.json or RESULT)
        return
    rows = [1, 4] if chosen.quick else [int(count) for count in chosen.rows.split(",")]
    if chosen.nodes:
        print_nodes(rows)
        return
    num_steps = 5 if chosen.quick else chosen.steps
    settings = {"layers": LAYERS, "prompt_tokens": PROMPT_TOKENS, "steps": num_steps, "device_ms": 1e3 * DEVICE_S}
    document = record.document("steps", settings, [])  # before: the commit that the run started with
    with tempfile.TemporaryDirectory(prefix="agon-steps-") as folder:
        device = IdleDevice()
        engine = Engine(Path(folder), device, max(rows))
        launches = {"nodes of the largest decode graph": describe(device.recorded[0])}
        for kind in KINDS:
            launches[f"{kind} step of {max(rows)} rows"] = describe(engine.count(kind, max(rows)))
        alone = measure_alone(engine, rows, num_steps)
        beside = measure_beside(engine, rows, min(num_steps, 50), INTERVALS_S[: 2 if chosen.quick else None])
    record.write(chosen.json or RESULT, {**document, "launches": launches, "rows": alone, "busy_thread": beside})


def describe(launches: Launches) -> dict[str, int]:
    """Its figures, and the launches of each layer if there are fewer outside the layers than there are layers."""
    return {**asdict(launches), "total": launches.total, "each_layer": launches.total // LAYERS}


def print_nodes(rows: Sequence[int]) -> None:
    """A table of the nodes of decode graphs, and of the pieces of steps with as many tokens of prompts, in Markdown."""
    device = IdleDevice()
    print("| model | graph | kernels | products of cuBLAS | torch's operators | nodes |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="agon-steps-") as folder:
        for name, model in MODELS.items():
            device.recorded.clear()
            device.recorded_pieces.clear()
            runner = Engine(Path(folder) / name, device, max(rows), model).runner
            buckets = runner.decode_graphs.buckets
            decodes = dict(zip(buckets.all(), device.recorded, strict=True))
            pieces = dict(zip(reversed(runner.prompt_graphs.counts), device.recorded_pieces, strict=True))
            tokens = [min(count for count in pieces if count >= wanted) for wanted in rows if wanted <= max(pieces)]
            for kind, graphs in (
                ("decode of {} rows", {count: decodes[buckets.bucket_for(count)] for count in rows}),
                ("pieces of {} tokens", {count: pieces[count] for count in dict.fromkeys(tokens)}),
            ):
                for count, nodes in graphs.items():
                    numbers = (nodes.kernels, nodes.products, nodes.torch, nodes.total)
                    print(f"| {name} | {kind.format(count)} | {' | '.join(map(str, numbers))} |", flush=True)


def measure_alone(engine: Engine, rows: Sequence[int], num_steps: int) -> list[dict[str, Any]]:
    """Microseconds of the processor for a step: of the whole engine, and of its runner."""
    found = []
    for kind in KINDS:
        for sampling in PARAMS:
            for count in rows:
                steps = engine.measure(kind, count, sampling, num_steps)
                point = {"step": kind, "sampling": sampling, "rows": count}
                found.append(point | microseconds("step", [step.whole for step in steps]))
                found[-1] |= microseconds("runner", [step.runner for step in steps])
                print(found[-1], file=sys.stderr, flush=True)
    return found


def measure_beside(
    engine: Engine, rows: Sequence[int], num_steps: int, intervals_s: Sequence[float]
) -> list[dict[str, Any]]:
    """Microseconds from a step to the next where each takes DEVICE_S of the device, alone and beside a busy thread."""
    found = []
    usual = sys.getswitchinterval()
    engine.runner.device_s = DEVICE_S
    for kind in KINDS:
        for count in rows:
            for interval_s in (None, *intervals_s):  # None: no second thread
                point = {"step": kind, "sampling": "sampled", "rows": count, "switch_interval_ms": None}
                if interval_s is None:
                    steps = engine.measure(kind, count, "sampled", num_steps)
                else:
                    sys.setswitchinterval(interval_s)
                    with busy_thread() as events:
                        started = time.perf_counter()
                        steps = engine.measure(kind, count, "sampled", num_steps)
                        seconds = time.perf_counter() - started
                    point |= {"switch_interval_ms": 1e3 * interval_s, "events_per_s": round(events[0] / seconds)}
                    sys.setswitchinterval(usual)
                found.append(point | microseconds("passed", [step.passed for step in steps]))
                print(found[-1], file=sys.stderr, flush=True)
    engine.runner.device_s = 0.0
    return found


def microseconds(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """The median and two percentiles."""
    return {f"{name}_us_p{percent}": round(1e6 * record.percentile(seconds, percent), 1) for percent in (50, 90, 99)}


def compare(before: Path, arguments: Sequence[str], path: Path) -> None:
    """Measure the tree `before` and this one in turns, and write the medians of all rounds side by side."""
    ours = Path(__file__).parents[2]
    kept = list(arguments)
    for flag in ("--against", "--json"):
        if flag in kept:
            del kept[kept.index(flag) : kept.index(flag) + 2]
    results: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
    for _ in range(_ROUNDS):
        for name, tree in (("before", before), ("after", ours)):
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                # The benchmark itself is from this tree where the other one has none.
                search = os.pathsep.join((str(tree), str(ours)))
                command = [sys.executable, "-m", "benchmarks.steps", *kept, "--json", file.name]
                subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": search}, cwd=tree)
                results[name].append(json.loads(Path(file.name).read_text()))
    merged = {name: _medians(rounds) for name, rounds in results.items()}
    head = {key: results["after"][0][key] for key in ("kind", "when", "commit", "machine", "settings")}
    record.write(path, {**head, "rounds": _ROUNDS, **merged})


def _medians(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first of the documents, with the median of all in place of each figure of a row."""
    merged = {"commit": rounds[0]["commit"], "launches": rounds[0]["launches"]}
    for table in ("rows", "busy_thread"):
        merged[table] = [
            {
                key: median(row[key] for row in same) if "_us_" in key or key == "events_per_s" else value
                for key, value in same[0].items()
            }
            for same in zip(*(document[table] for document in rounds), strict=True)
        ]
    return merged


if __name__ == "__main__":
    main()
