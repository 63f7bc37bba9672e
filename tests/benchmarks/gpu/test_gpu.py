"""The GPU benchmark in miniature: that all of it runs, and that its bounds are those of the arithmetic."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.bounds import decode_parts_s, decode_s, prefill_s, weight_bytes
from benchmarks.gpu.measure import measure
from benchmarks.gpu.plan import MINIATURE, Plan, uniform_work
from benchmarks.gpu.profile import class_of
from benchmarks.gpu.rows import Row, Rows, describe
from benchmarks.gpu.shapes import CONFIGS
from benchmarks.kernels.limits import H200


@pytest.mark.parametrize(
    ("model", "batch", "tokens_per_s"),
    [("llama-3.2-1b", 1, 1716), ("qwen3-0.6b", 64, 31602), ("llama-3.1-8b", 256, 19915)],
)
def test_the_bound_of_a_decode_is_reading_weights_and_contexts(model: str, batch: int, tokens_per_s: int) -> None:
    assert batch / decode_s(H200, CONFIGS[model], batch, 1024) == pytest.approx(tokens_per_s, rel=1e-3)


@pytest.mark.parametrize(("model", "tokens", "ms"), [("llama-3.2-1b", 1024, 2.61), ("qwen3-0.6b", 8192, 18.9)])
def test_the_bound_of_a_prompt_is_its_arithmetic(model: str, tokens: int, ms: float) -> None:
    assert 1e3 * prefill_s(H200, CONFIGS[model], tokens) == pytest.approx(ms, rel=5e-3)


def test_the_parts_of_a_step_have_bounds_of_their_own() -> None:
    parts = decode_parts_s(H200, CONFIGS["llama-3.1-8b"], 64, 1024)
    assert parts["products"] + parts["attention"] == decode_s(H200, CONFIGS["llama-3.1-8b"], 64, 1024)
    assert parts["norms"] == pytest.approx(65 * 4 * 64 * 4096 * 2 / 4.3e12)
    assert parts["storing"] == pytest.approx(32 * 2 * 64 * 48 * 128 * 2 / 4.3e12)
    assert parts["activations"] == pytest.approx(32 * 3 * 64 * 14336 * 2 / 4.3e12)
    assert parts["sampling"] == pytest.approx(64 * 128256 * 2 / 4.3e12)


@pytest.mark.parametrize(
    ("name", "kernel_class"),
    [
        ("attend_pages", "attention"),
        ("_merge_states", "attention"),
        ("_store_heads", "storing"),
        ("_norm", "norms"),
        ("_activate_rows", "activations"),
        ("_scan_spans", "sampling"),
        ("_draw", "sampling"),
        ("_prepare_decode", "other"),
        ("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", "products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "products"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>", "products"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>", "other"),
        ("Memcpy HtoD (Pinned -> Device)", "other"),
    ],
)
def test_a_kernel_has_its_class_by_its_name(name: str, kernel_class: str) -> None:
    assert class_of(name) == kernel_class


def test_uniform_work_is_the_same_every_time_and_has_the_lengths_that_were_asked_for() -> None:
    work = uniform_work(256, 100, 1024, 151936)
    assert work == uniform_work(256, 100, 1024, 151936)
    for lengths in ([len(item.ids) for item in work], [item.out for item in work]):
        assert min(lengths) >= 100
        assert max(lengths) <= 1024
        assert sum(lengths) / len(lengths) == pytest.approx(562, rel=0.1)


def measured(plan: Plan, budget_s: float = 1e9, **more: Any) -> list[Row]:
    """The rows of all parts, in this process."""
    rows = Rows(plan, "cpu", H200, budget_s, lambda _: None, **more)
    for part in plan.parts:
        rows.measure(part)
    return rows.rows


def test_every_row_of_the_miniature_is_measured() -> None:
    lines: list[str] = []
    saved: list[int] = []
    plan = replace(MINIATURE, num_profiled=3)
    measuring = Rows(plan, "cpu", H200, 1e9, lines.append, lambda rows: saved.append(len(rows)))
    for part in plan.parts:
        measuring.measure(part)
    rows = measuring.rows
    assert set(saved) == set(range(1, len(rows) + 1))  # a run that is cut off keeps all that was measured
    assert [line for line in lines if "failed" in line] == []
    assert {row["work"] for row in rows} == {"load", "decode", "prefill", "uniform", "sharegpt", "profile"}
    assert {row["system"] for row in rows} == {
        "agon",
        "transformers",
        "transformers, one at a time",
        "transformers, batches of 3",
    }
    timed = [row for row in rows if row["work"] not in ("load", "profile")]
    assert all(row["tokens_per_s"] > 0 for row in timed)
    batch_of_three, profile = (row for row in rows if row.get("batch") == 3)
    assert batch_of_three["context"] == pytest.approx(MINIATURE.context, abs=8)
    assert "% of bound" in describe(batch_of_three)
    launches = {part["kernel_class"]: part["launches"] for part in profile["classes"]}
    assert launches["products"] == 4 * 2 + 1  # in two layers, and the head
    assert sum(part["us"] for part in profile["classes"]) == pytest.approx(profile["us"])
    assert sum(kernel["us"] for kernel in profile["kernels"]) == pytest.approx(profile["us"], rel=0.01)
    assert "products" in describe(profile)


def test_contexts_that_do_not_fit_beside_each_other_are_not_measured() -> None:
    plan = replace(
        MINIATURE, batches=(200,), context=400, prompts=(), has_peers=False, uniform=(1, 4, 4), num_sharegpt=1
    )
    (row,) = (row for row in measured(plan) if row["work"] == "decode")
    assert row["skipped"] == "it does not fit: contexts of 19.5 MiB, pages of 16.0 MiB"


def test_weights_are_counted_with_an_embedding_of_its_own() -> None:
    assert weight_bytes(CONFIGS["llama-3.1-8b"]) == pytest.approx(2 * 8.03e9, rel=1e-3)
    assert weight_bytes(CONFIGS["llama-3.2-1b"]) == pytest.approx(2 * 1.2358e9, rel=1e-3)


def test_models_that_would_be_loaded_too_late_and_those_that_fail_say_so() -> None:
    rows = measured(MINIATURE, 0.0)
    assert [row["system"] for row in rows] == ["agon", "transformers"]
    assert all(row["skipped"] for row in rows)
    (row,) = measured(replace(MINIATURE, has_peers=False), memory_bytes=1e5)
    assert row["skipped"].startswith("it does not fit: weights of 0.2 MiB, 0.1 MiB")
    (row,) = measured(replace(MINIATURE, max_model_len=2 << 20, has_peers=False))
    assert "max_model_len" in row["failed"]


def test_what_another_process_has_measured_is_not_measured_again() -> None:
    plan = replace(MINIATURE, batches=(1,), prompts=(), num_sharegpt=0, has_peers=False)
    rows = measured(plan)
    decode = next(row for row in rows if row["work"] == "decode")
    uniform = next(row for row in rows if row["work"] == "uniform")
    decode["failed"] = "its process ended with status -6"
    again = measured(plan, earlier=[row for row in rows if row is not uniform])
    assert decode in again
    assert sorted(row["work"] for row in again) == ["decode", "load", "uniform"]
    load = next(row for row in rows if row["work"] == "load")
    broken = [{**load, "failed": "its process ended with status -6"}]
    del broken[0]["seconds"]
    assert measured(plan, earlier=broken) == broken, "what ended that process would end this one"


def test_rows_of_other_models_stay_in_a_document_that_is_added_to(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    other = {"work": "decode", "system": "agon", "model": "qwen3-0.6b", "batch": 1, "tokens_per_s": 1000.0}
    old = {"work": "decode", "system": "agon", "model": "tiny", "batch": 1, "tokens_per_s": 9.0}
    before = {"device": {"name": "cpu"}, "limits": {"bytes_per_s": 1e10, "flops": 1e10}, "rows": [other, old]}
    path.write_text(json.dumps(before))
    assert measure(MINIATURE, ["tiny"], path, 0.0, ["--device", "cpu"], appends=True) == 0
    rows = json.loads(path.read_text())["rows"]
    skipped = {"work": "load", "system": "agon", "model": "tiny", "skipped": "the time was over"}
    assert rows == [other, skipped]


def test_a_process_that_measures_nothing_is_a_row_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    path = tmp_path / "gpu.json"
    assert measure(MINIATURE, ["tiny", "transformers"], path, 60.0, [], appends=False) == 1
    rows = json.loads(path.read_text())["rows"]
    assert [row["failed"] for row in rows] == 2 * ["its process ended with status 1"]
