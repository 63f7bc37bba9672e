"""The benchmark of kernels without a device: every case calls its kernel rightly, and asked to measure it says no."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from benchmarks.kernels import measure, tune, tune_products, tune_quantised
from benchmarks.kernels.attention import PagedStep, Shape
from benchmarks.kernels.case import Case, Goal
from benchmarks.kernels.cases import all_cases
from benchmarks.kernels.limits import H200
from benchmarks.kernels.products import ROWS, product_cases
from benchmarks.kernels.tune import call_with
from engine.kernels import gpu
from engine.kernels.gpu.attention_tiles import AttentionTiles
from engine.kernels.gpu.products import ROW_COUNTS
from engine.kernels.gpu.skinny_product import formula_tiles

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run in the interpreter where there is no device")
def test_every_case_runs_in_the_interpreter() -> None:
    kernels = set()
    for case in all_cases(is_quick=True):
        case.make(CPU)()
        if case.peer is not None:
            case.peer(CPU)()
        assert case.num_bytes > 0
        kernels.add(case.kernel)
    assert len(kernels) == len({case.kernel for case in all_cases(is_quick=False)})


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run in the interpreter where there is no device")
def test_other_tiles_are_measured_on_the_same_attention() -> None:
    for shape in (Shape(2, 40, 1, 4, 2, 16), Shape(1, 24, 9, 4, 2, 16)):
        step = PagedStep.of(shape, CPU)
        operands = (step.query, step.pages, step.page_table, step.slots, step.context_lengths)
        if shape.queries == 1:
            gpu.attend_decode(*operands, step.output, step.options, step.workspace)
        else:
            bounds = (shape.queries, shape.context)
            gpu.attend_mixed(*operands, step.query_starts, step.output, step.options, step.workspace, *bounds)
        expected = step.output.clone()
        step.output.zero_()
        call_with(AttentionTiles(16, 16, 16, 4, 3), shape, step)()
        torch.testing.assert_close(step.output, expected, atol=2e-3, rtol=2e-3)


class Script:
    """A clock that calls what it is given, and says what the test wants to hear."""

    def __init__(self, *microseconds: float) -> None:
        self._microseconds = iter(microseconds)

    def microseconds(self, call: Callable[[], object]) -> float:
        call()
        return next(self._microseconds)


def of_16_rows(formula: AttentionTiles, times: object, *, is_decode: bool) -> Iterator[AttentionTiles]:
    yield from (AttentionTiles(16, 16, part_tokens, 4, 3) for part_tokens in (16, 32, 48))


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run in the interpreter where there is no device")
def test_tuning_keeps_what_is_faster_and_right_and_gives_up_what_is_far_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes = (Shape(2, 40, 1, 4, 2, 16), Shape(1, 24, 1, 4, 2, 16))
    monkeypatch.setattr(tune, "_candidates", of_16_rows)

    def swept(*microseconds: float, seconds: float = 1e9) -> list[int]:
        clock: Any = Script(*microseconds)
        entries = tune.sweep(clock, 90, CPU, time.monotonic() + seconds, (shapes,))
        return [entry["values"]["part_tokens"] for entry in entries]

    # The formula's, and three sets, of which the first is given up after one shape.
    assert swept(8, 8, 17, 7, 7, 8, 8) == [32]
    assert swept(8, 8, 7.9, 8, 8, 8, 8, 8) == []
    assert swept(seconds=-1.0) == []

    def wrong(tiles: AttentionTiles, shape: Shape, step: PagedStep) -> Callable[[], object]:
        call = call_with(tiles, shape, step)
        return call if tiles.part_tokens != 32 else lambda: (call(), step.output.mul_(1.5))

    monkeypatch.setattr(tune, "call_with", wrong)
    assert swept(8, 8, 7, 7, 5, 5, 6, 6) == [48]


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run in the interpreter where there is no device")
def test_products_that_are_faster_than_cublas_s_come_into_the_table_with_their_tiles() -> None:
    formula, *others = tune_products.candidates(formula_tiles(32, 48, 16, 2, 4))
    assert len({formula, *others}) == 1 + len(others) >= 3

    def swept(library: float, *ours: float) -> dict[str, Any]:
        clock: Any = Script(*(library, *ours) * len(ROW_COUNTS))
        entries = list(tune_products.sweep(clock, 4, CPU, time.monotonic() + 1e9, ((32, 48),)))
        assert [entry["rows"] for entry in entries] == list(ROW_COUNTS)
        assert (entries[0]["size"], entries[0]["channels"]) == (32, 48)
        values: dict[str, Any] = entries[0]["values"]
        return values

    slow = [12.0] * len(others)
    assert swept(10.0, 9.0, *slow) == asdict(formula)
    assert swept(10.0, 12.0, *slow[1:], 9.0) == asdict(others[-1])
    assert swept(10.0, 9.9, *slow) == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run in the interpreter where there is no device")
def test_quantised_products_get_an_entry_where_other_tiles_than_the_formula_s_gain() -> None:
    def swept(*times: float) -> list[dict[str, Any]]:
        clock: Any = Script(*times * 100)
        return list(tune_quantised.sweep(clock, 4, CPU, time.monotonic() + 1e9, ((64, 48),), (16,)))

    assert swept(10.0) == []
    found = swept(10.0, 9.0)
    assert {entry["kernel"] for entry in found} == {"quantised_product"}
    assert found[0]["dtype"] == "float16 x int4 with zeros in groups of 64"
    assert found[0]["measured"] == {"microseconds": 9.0, "formula_microseconds": 10.0}


def test_bytes_and_operations_of_attention_are_counted_by_hand() -> None:
    decode = Shape(2, 10, 1, num_heads=4, num_kv_heads=2, head_dim=8)
    assert decode.num_bytes == 2 * 2 * 8 * (10 * 2 * 2 + 2 * 4)
    assert decode.flops == 4 * 2 * 10 * 4 * 8
    assert Shape(1, 3, 3, num_heads=1, num_kv_heads=1, head_dim=1).flops == 4 * (1 + 2 + 3)
    assert Shape(1, 3, 2, num_heads=1, num_kv_heads=1, head_dim=1).flops == 4 * (2 + 3)


def test_a_product_reads_its_weights_once_and_few_rows_are_bound_by_that() -> None:
    products = {case.shape: case for case in product_cases(is_quick=False)}
    assert len(products) == 3 * 5 * len(ROWS)
    down = {rows: products[f"{rows} rows, down of llama-3.1-8b, 14336 x 4096"] for rows in ROWS}
    assert down[16].num_bytes == 2 * (14336 * 4096 + 16 * (14336 + 4096))
    assert down[16].flops == 2 * 16 * 14336 * 4096
    assert down[16].bound_us(H200) == pytest.approx(1e6 * down[16].num_bytes / 4.3e12)
    assert down[256].bound_us(H200) == pytest.approx(1e6 * down[256].flops / 790e12)
    assert [None if case.goal is None else case.goal.share for case in down.values()] == [0.85, 0.85, 0.85, 0.70]


def test_what_a_kernel_finds_in_the_cache_within_a_step_is_timed_so_too() -> None:
    warm = {case.kernel for case in all_cases(is_quick=False) if case.is_warm}
    assert warm == {"heads into pages", "addition and RMS norm", "silu and product"}


def test_a_kernel_that_fails_is_counted_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(device: torch.device) -> Callable[[], object]:
        return lambda: None

    def broken(device: torch.device) -> Callable[[], object]:
        raise ValueError("an invented error")

    cases = [Case("one", "1", 1, 0, None, broken), Case("two", "2", 1, 0, Goal(microseconds=1e9), make)]
    monkeypatch.setattr(measure, "all_cases", lambda *, is_quick: cases)
    path = tmp_path / "kernels.json"
    assert measure.measure(CPU, "", path, time.monotonic() + 1e9, is_quick=True) == 1
    first, second = json.loads(path.read_text())["rows"]
    assert first["failed"] == "ValueError: an invented error"
    assert second["is_goal_met"]


def test_a_goal_is_a_time_or_a_share_of_the_bound() -> None:
    assert Goal(microseconds=8).is_met(7.9, bound_us=1.0)
    assert not Goal(microseconds=8).is_met(8.1, bound_us=8.0)
    assert Goal(share=0.5).is_met(10.0, bound_us=5.0)
    assert not Goal(share=0.5).is_met(10.1, bound_us=5.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a device")
@pytest.mark.parametrize("task", ["measure", "tune"])
def test_without_a_device_one_line_says_so(task: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kernels", task], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stderr.splitlines() == ["There is no CUDA device here: kernels can be neither measured nor tuned."]
