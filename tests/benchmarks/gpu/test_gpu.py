"""The GPU benchmark in miniature: that all of it runs, and that its bounds are those of the arithmetic."""

from dataclasses import replace

import pytest

from benchmarks.gpu.plan import MINIATURE, uniform_work
from benchmarks.gpu.rows import Rows, describe
from benchmarks.gpu.shapes import CONFIGS, Limits


@pytest.mark.parametrize(
    ("model", "batch", "tokens_per_s"),
    [("llama-3.2-1b", 1, 1716), ("qwen3-0.6b", 64, 31602), ("llama-3.1-8b", 256, 19915)],
)
def test_the_bound_of_a_decode_is_reading_weights_and_contexts(model: str, batch: int, tokens_per_s: int) -> None:
    assert batch / Limits().decode_s(CONFIGS[model], batch, 1024) == pytest.approx(tokens_per_s, rel=1e-3)


@pytest.mark.parametrize(("model", "tokens", "ms"), [("llama-3.2-1b", 1024, 2.61), ("qwen3-0.6b", 8192, 18.9)])
def test_the_bound_of_a_prompt_is_its_arithmetic(model: str, tokens: int, ms: float) -> None:
    assert 1e3 * Limits().prefill_s(CONFIGS[model], tokens) == pytest.approx(ms, rel=5e-3)


def test_uniform_work_is_the_same_every_time_and_has_the_lengths_that_were_asked_for() -> None:
    work = uniform_work(256, 100, 1024, 151936)
    assert work == uniform_work(256, 100, 1024, 151936)
    for lengths in ([len(item.ids) for item in work], [item.out for item in work]):
        assert min(lengths) >= 100
        assert max(lengths) <= 1024
        assert sum(lengths) / len(lengths) == pytest.approx(562, rel=0.1)


def test_every_row_of_the_miniature_is_measured() -> None:
    lines: list[str] = []
    saved: list[int] = []
    rows = Rows(MINIATURE, "cpu", Limits(), 1e9, lines.append, lambda rows: saved.append(len(rows))).measure()
    assert set(saved) == set(range(1, len(rows) + 1))  # a run that is cut off keeps all that was measured
    assert [line for line in lines if "failed" in line] == []
    assert {row["work"] for row in rows} == {"load", "decode", "prefill", "uniform", "sharegpt"}
    assert {row["system"] for row in rows} == {
        "agon",
        "transformers, one at a time",
        "transformers, batches of 2",
    }
    timed = [row for row in rows if row["work"] != "load"]
    assert all(row["tokens_per_s"] > 0 for row in timed)
    (batch_of_three,) = (row for row in rows if row.get("batch") == 3)
    assert batch_of_three["context"] == pytest.approx(MINIATURE.context, abs=8)
    assert "% of bound" in describe(batch_of_three)


def test_models_that_would_be_loaded_too_late_and_those_that_fail_say_so() -> None:
    rows = Rows(MINIATURE, "cpu", None, 0.0, lambda _: None).measure()
    assert [row["system"] for row in rows] == ["agon", "transformers"]
    assert all(row["skipped"] for row in rows)
    broken = replace(MINIATURE, max_model_len=2 << 20, peer_batches=())
    rows = Rows(broken, "cpu", None, 1e9, lambda _: None).measure()
    assert "max_model_len" in next(row["failed"] for row in rows if row["system"] == "agon")
