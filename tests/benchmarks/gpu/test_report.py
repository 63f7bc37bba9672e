"""Tables from the results of a GPU. test_first_minutes.py makes them from a run on a CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.bounds import decode_s, prefill_s
from benchmarks.gpu.estimates import (
    DOCUMENT,
    estimated_decode_s,
    estimated_prefill_s,
    estimates_table,
    load_s,
    with_table,
)
from benchmarks.gpu.report import report
from benchmarks.gpu.shapes import CONFIGS, DECODE_GOALS, PREFILL_GOALS
from benchmarks.kernels.limits import H200
from cli.bench.workloads import Work

H200_LIMITS = {"bytes_per_s": 4.3e12, "flops": 790e12}


def write(folder: Path, name: str, document: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(document))


def whole_run(*rows: dict[str, Any]) -> dict[str, Any]:
    device = {"name": "NVIDIA H200", "versions": {"torch": "2.11.0+cu130", "triton": "3.6.0"}}
    return {"commit": "abc1234", "device": device, "limits": H200_LIMITS, "rows": list(rows)}


DECODE = {
    "work": "decode",
    "system": "agon",
    "model": "llama-3.1-8b",
    "batch": 64,
    "tokens_per_s": 8000.0,
    "step_ms": 8.0,
    "context": 1024.0,
    "bound": 11661.0,
    "goal": 9400,
    "first_milestone": 7500,
}


def test_results_stand_beside_bound_estimate_goal_and_what_others_published(tmp_path: Path) -> None:
    load = {"work": "uniform", "model": "qwen3-0.6b", "requests": 256, "tokens_per_s": 21000.0}
    late = {
        "work": "prefill",
        "system": "agon",
        "model": "llama-3.1-8b",
        "prompt_tokens": 8192,
        "skipped": "the time was over",
    }
    rows = [DECODE, late, {**load, "system": "agon", "goal": 20000}, {**load, "system": "transformers, batches of 128"}]
    write(tmp_path, "gpu.json", whole_run(*rows))
    text = report(tmp_path)
    assert "NVIDIA H200; torch 2.11.0+cu130, triton 3.6.0; commit abc1234." in text
    estimate = 64 / estimated_decode_s(H200, CONFIGS["llama-3.1-8b"], 64, 1024.0)
    expected = f"| llama-3.1-8b | 64 | 8,000 | 11,661 | 69 % | {estimate:,.0f} | 9,400, missed | 7,500, reached |"
    assert expected in text
    assert "| qwen3-0.6b | uniform | agon | 256 | 21,000 | 20,000, reached |" in text
    assert "published: vLLM 0.10.2, A800" in text
    assert "| prefill agon llama-3.1-8b 8192 | the time was over |" in text


def test_what_failed_is_named(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"stage": "probes", "status": 0, "at": 0, "seconds": 9},
        {"stage": "tests", "status": 1, "at": 9, "seconds": 70},
        {"stage": "qwen", "status": 124, "at": 79, "seconds": 60},
        {"stage": "probes", "status": 0, "at": 0, "seconds": 7},  # repeated
        {"probe": "split sums", "has_begun": True},
        {"probe": "rows of NaN", "has_begun": True},
        {"probe": "rows of NaN", "is_right": False, "tokens": [7], "seconds": 0.1},
        {"smoke": "eager", "form": "int4", "is_right": True, "error": 0.001},
    ]
    cut_off = '{"probe": "neighb'
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)
    (tmp_path / "tests.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.a" name="first"/>'
        '<testcase classname="tests.a" name="second">'
        '<failure message="assert 1 == 2">...</failure></testcase></testsuite></testsuites>'
    )
    text = report(tmp_path)
    assert "| tests | failed, status 1 | 9 | 70 |" in text
    assert "| qwen | out of time | 79 | 60 |" in text
    assert "| probes | passed | 0 | 7 |" in text
    assert text.count("| probes |") == 1
    assert "| split sums | ended its process |" in text
    assert "| rows of NaN | wrong | tokens [7] |" in text
    assert "| eager | int4 | right | error 0.001 |" in text
    assert "2 tests, 1 failed, 0 skipped." in text
    assert "| tests.a::second | assert 1 == 2 |" in text


def test_kernels_have_their_goals_and_warm_times_and_tiles_their_gain(tmp_path: Path) -> None:
    row = {"kernel": "addition and RMS norm", "shape": "64 x 4096", "us": 3.4, "warm_us": 2.1, "bound_us": 0.49}
    goal = {"share": None, "microseconds": 2.5}
    row |= {"share_of_bound": 0.144, "goal": goal, "is_goal_met": True, "torch_us": None}
    broken = {"kernel": "product", "shape": "1 rows", "failed": "ValueError: an invented error"}
    run = {"commit": "abc1234", "device": {"name": "NVIDIA H200"}, "limits": H200_LIMITS, "rows": [row, broken]}
    write(tmp_path, "kernels.json", run)
    entry = {"kernel": "paged_attention", "mode": "decode", "page_dtype": "bfloat16", "head_dim": 128, "rows": 16}
    entry |= {"values": {"block_t": 32, "num_warps": 2}}
    entry |= {"measured": {"microseconds": {"a": 9.0, "b": 8.0}, "formula_microseconds": {"a": 10.0, "b": 10.0}}}
    product = {"kernel": "skinny_product", "size": 4096, "channels": 6144, "rows": 1, "values": {"splits": 4}}
    product |= {"measured": {"microseconds": 14.0, "library_microseconds": 17.5}}
    slow = product | {"rows": 16, "values": {}, "measured": {"microseconds": None, "library_microseconds": 18.0}}
    write(tmp_path, "sm_90.json", {"entries": [entry, product, slow]})
    text = report(tmp_path)
    assert "| 4096 x 6144 | 1 | splits 4 | 14.0 | 17.5 |" in text
    assert "| 4096 x 6144 | 16 | cuBLAS |  | 18.0 |" in text
    assert "| addition and RMS norm | 64 x 4096 | 3.4 | 2.1 | 0.5 | 14 % | 2.5 us | met |  |" in text
    assert "ValueError: an invented error" in text
    assert "| paged_attention, decode, bfloat16, D 128, 16 rows | block_t 32, num_warps 2 | 85 % |" in text


def test_an_empty_folder_has_an_empty_report(tmp_path: Path) -> None:
    assert "|" not in report(tmp_path)


def test_the_document_has_the_estimates_of_the_code() -> None:
    """`python -m benchmarks.gpu estimates` writes them."""
    page = DOCUMENT.read_text()
    assert estimates_table() in page
    assert with_table(page) == page


@pytest.mark.parametrize("model", ["llama-3.2-1b", "qwen3-0.6b", "llama-3.1-8b"])
def test_no_estimate_is_above_its_bound_and_larger_batches_are_faster(model: str) -> None:
    config = CONFIGS[model]
    goals = {batch: goal for (name, batch), goal in DECODE_GOALS.items() if name == model}
    speeds = [batch / estimated_decode_s(H200, config, batch, 1024) for batch in goals]
    assert speeds == sorted(speeds)
    for (batch, goal), speed in zip(goals.items(), speeds, strict=True):
        assert speed < batch / decode_s(H200, config, batch, 1024)
        assert goal.milestone is not None
        assert goal.milestone < speed  # the review of the machine code: all first milestones are in reach
    for name, tokens in PREFILL_GOALS:
        if name == model:
            assert estimated_prefill_s(H200, config, tokens) > prefill_s(H200, config, tokens)


def test_measurements_stand_beside_the_estimates(tmp_path: Path) -> None:
    write(
        tmp_path / "h200",
        "gpu.json",
        whole_run(
            DECODE,
            {"work": "decode", "system": "agon", "model": "llama-3.1-8b", "batch": 16, "failed": "out of memory"},
        ),
    )
    lines = estimates_table(tmp_path).splitlines()
    assert lines[0].endswith("| first milestone | h200, measured |")
    assert next(line for line in lines if "llama-3.1-8b | decode, 64" in line).endswith("| 7,500 | 8,000 |")
    assert next(line for line in lines if "llama-3.1-8b | decode, 16" in line).endswith("| 2,800 |  |")
    assert "Nothing has been measured" not in with_table(DOCUMENT.read_text(), tmp_path)
    assert "Nothing has been measured" in with_table(DOCUMENT.read_text(), tmp_path / "none")


def test_a_load_takes_its_prompts_and_then_steps_of_those_that_are_left() -> None:
    config = CONFIGS["qwen3-0.6b"]
    work = [Work((7,) * 100, 3), Work((7,) * 200, 2)]
    steps = decode_s(H200, config, 2, 151) + decode_s(H200, config, 1, 102)
    expected = prefill_s(H200, config, 100) + prefill_s(H200, config, 200) + steps
    assert load_s(H200, config, work, is_bound=True) == pytest.approx(expected)
    assert load_s(H200, config, work, is_bound=False) > expected
