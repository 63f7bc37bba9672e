"""The measurements of a step, on a demo model: everything is counted, and nothing twice."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.engine.scaling import measure_scaling, points
from benchmarks.engine.shares import Stopwatch, measure_shares
from engine.config import EngineConfig

FINCH = str(Path(__file__).parent.parent.parent.parent / "demo_models" / "finch")


def test_the_parts_of_a_step_add_up_to_it() -> None:
    config = EngineConfig(FINCH, device="cpu", num_threads=1, enable_prefix_caching=False)
    shares = measure_shares(config, batch=3, prompt_tokens=9, steps=5)
    assert sum(shares["parts_ms"].values()) == pytest.approx(shares["step_ms"], rel=0.01)
    assert all(part >= 0 for part in shares["parts_ms"].values())
    assert shares["overhead_share"] == pytest.approx(1 - shares["shares"]["model"], abs=1e-4)


def test_every_point_is_measured_with_its_own_page_size() -> None:
    def config(page_tokens: int, max_model_len: int) -> EngineConfig:
        return EngineConfig(FINCH, page_tokens=page_tokens, kv_cache_bytes=2**26, num_threads=1, device="cpu")

    rows = measure_scaling(config, repeats=2, is_quick=True, progress=lambda text: None)
    wanted = {(point.varied, point.batch, point.context, point.page_tokens) for point in points(is_quick=True)}
    assert {(row["varied"], row["batch"], row["context"], row["page_tokens"]) for row in rows} == wanted
    assert all(0 < row["best_ms"] <= row["median_ms"] for row in rows)


def test_a_stopwatch_counts_a_call_within_a_call_once() -> None:
    owner = SimpleNamespace()
    owner.inner = lambda: sum(range(1000))
    owner.outer = lambda: owner.inner() + owner.inner()
    watch = Stopwatch()
    watch.wrap(owner, "inner", "all")
    watch.wrap(owner, "outer", "all")
    owner.outer()
    owner.inner()
    assert watch.calls["all"] == 2
