"""The measured operators: their list, limits, and the rows of a run."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.operators import __main__ as operators
from benchmarks.operators.cases import Case, all_cases
from benchmarks.operators.limits import CACHED_BYTES, Limits, best_seconds

QUICK = [case for case in all_cases(1, is_quick=True) if "49152" not in case.shape]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.operator} {case.implementation} {case.shape}")
def test_every_operator_can_be_called_again_and_again(case: Case) -> None:
    with torch.inference_mode():
        run = case.make()
        assert best_seconds(run, 0) > 0
    assert case.num_bytes > 0


def test_the_full_list_has_every_shape_once_for_each_implementation() -> None:
    names = [(case.operator, case.implementation, case.shape, case.dtype) for case in all_cases(1, is_quick=False)]
    assert len(names) == len(set(names))
    shapes = {case.shape for case in all_cases(1, is_quick=False) if case.operator == "paged attention, decode"}
    assert len(shapes) == 2 * 3 * 3


def test_the_limit_is_the_longer_of_moving_and_computing() -> None:
    limits = Limits(10.0, 100.0, bfloat16_gflops=1000.0, float32_gflops=200.0, int8_gops=2000.0)
    assert limits.seconds(10**6, 0, torch.bfloat16) == pytest.approx(1e-5)
    assert limits.seconds(10**6, 10**9, torch.bfloat16) == pytest.approx(1e-3)
    assert limits.seconds(10**6, 10**9, torch.float32) == pytest.approx(5e-3)
    assert limits.seconds(CACHED_BYTES + 1, 0, torch.float32) == pytest.approx((CACHED_BYTES + 1) / 10e9)


def test_the_better_of_two_measurements_of_a_limit_counts() -> None:
    assert Limits(1.0, 20.0, 3.0, 40.0, 5.0).best_of(Limits(10.0, 2.0, 30.0, 4.0, 50.0)) == Limits(
        10.0, 20.0, 30.0, 40.0, 50.0
    )


def test_a_run_writes_every_row_with_its_share(tmp_path: Path) -> None:
    result = tmp_path / "operators.json"
    operators.main(["--quick", "--operator", "RMS", "--threads", "1", "--seconds", "0.01", "--json", str(result)])
    document = json.loads(result.read_text())
    assert {row["operator"] for row in document["rows"]} == {"addition and RMS norm"}
    for row in document["rows"]:
        assert row["share_of_limit"] == pytest.approx(row["limit_us"] / row["best_us"], rel=0.05, abs=1e-3)
    assert document["limits"]["memory_gb_per_s"] > 0
