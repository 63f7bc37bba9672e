"""The benchmark of the host's work in a step, on a device that computes nothing, in its smallest form."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.estimates import FEW_ROWS_PER_LAYER, FEW_ROWS_PER_STEP

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)

ROOT = Path(__file__).parents[3]


def test_launches_are_counted_and_steps_timed_without_a_gpu(tmp_path: Path) -> None:
    result = tmp_path / "steps.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "benchmarks.steps", "--quick", "--json", str(result)]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=200)
    document = json.loads(result.read_text())
    graph = document["launches"]["nodes of the largest decode graph"]
    assert graph["products"] == 0, "those of few rows are the engine's own"
    assert graph["kernels"] >= 6 * document["settings"]["layers"]
    assert graph["total"] == graph["kernels"] + graph["products"] + graph["torch"]
    assert graph["total"] == FEW_ROWS_PER_LAYER * document["settings"]["layers"] + FEW_ROWS_PER_STEP, (
        "the estimates of docs/gpu.md assume other numbers: benchmarks/gpu/estimates.py"
    )
    replayed, mixed = (document["launches"][f"{kind} step of 4 rows"] for kind in ("decode", "mixed"))
    assert replayed["kernels"] == 0, "a replay is no launch"
    assert mixed["graphs"] == document["settings"]["layers"] + 1, "pieces between the attention of layers"
    assert mixed["products"] == 0, "they lie in the pieces; that of the logits of 4 rows is the engine's own"
    # In each layer: pages, decodes, the prompt.
    assert mixed["kernels"] > 3 * document["settings"]["layers"]
    points = {(row["step"], row["sampling"], row["rows"]) for row in document["rows"]}
    assert points == {(s, p, n) for s in ("decode", "mixed") for p in ("greedy", "sampled") for n in (1, 4)}
    assert all(0 < row["runner_us_p50"] < row["step_us_p50"] <= row["step_us_p99"] for row in document["rows"])
    assert {row["switch_interval_ms"] for row in document["busy_thread"]} == {None, 5.0, 0.5}
    assert all(row["events_per_s"] > 0 for row in document["busy_thread"] if row["switch_interval_ms"])


@pytest.mark.long
def test_steps_are_timed_with_the_engine_in_a_thread_and_in_a_process() -> None:
    command = [sys.executable, "-m", "benchmarks.steps.served", "--quick"]
    written = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=200).stdout
    points = json.loads(written)["points"]
    found = {(point["engine"], point["step"], point["is_loop_saturated"]) for point in points}
    assert found == {(e, s, b) for e in ("thread", "process") for s in ("decode", "mixed") for b in (False, True)}
    assert all(point["step_ms"] >= 1.9 for point in points), "the device takes 2 ms"
