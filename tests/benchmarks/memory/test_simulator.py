"""What the simulator must show, on traces small enough for every run; docs/memory.md has the whole of it."""

import pytest

from benchmarks.memory import experiments, report, traces
from benchmarks.memory.baselines import ContiguousCache, ReleaseOrderKVCache, StaticPartitionKVCache
from benchmarks.memory.experiments import designs_of, layers_of, serve
from benchmarks.memory.simulator import Result, simulate
from engine.memory.kv_cache import KVCache
from engine.memory.planning.designs import live_bytes, uniform_design
from engine.memory.planning.planner import pool_of

MINISTRAL_POOL = 24_000 * 27 * 16 * 4096


@pytest.fixture(scope="module")
def long_documents() -> dict[str, Result]:
    layers = layers_of("ministral-8b")
    trace = traces.long_documents(20)
    return {
        name: serve(designs_of(layers)[name], layers, trace, MINISTRAL_POOL, max_step_tokens=8192)
        for name in ("planner", "lcm", "uniform")
    }


def test_long_documents_waste_a_thousandth_where_one_page_table_wastes_a_third(
    long_documents: dict[str, Result],
) -> None:
    assert 0 <= long_documents["planner"].waste < 0.001
    assert 0 <= long_documents["lcm"].waste < 0.001
    assert long_documents["uniform"].waste > 0.3


def test_long_documents_decode_in_batches_at_least_1_4_times_as_large(long_documents: dict[str, Result]) -> None:
    assert long_documents["planner"].mean_batch >= 1.4 * long_documents["uniform"].mean_batch
    assert long_documents["planner"].num_steps < long_documents["uniform"].num_steps


def test_chats_in_pages_of_16_tokens_waste_less_than_4_percent() -> None:
    layers = layers_of("llama-3.1-8b")
    design = uniform_design(layers, page_tokens=16)
    result = serve(design, layers, traces.chats(60, 161, 338), 8 * 2**30, sample_every=5)
    assert 0 < result.waste < 0.04


@pytest.mark.parametrize("model", ["gemma-3-12b", "jamba-1.5-mini"])
@pytest.mark.parametrize("load", ["articles", "sessions"])
def test_hit_rates_are_never_below_those_of_eviction_in_the_order_of_release(model: str, load: str) -> None:
    layers = layers_of(model)
    design = designs_of(layers)["planner"]
    if load == "articles":
        trace = traces.shared_articles(6, 40, article_tokens=2600)
    else:
        trace = traces.sessions(10, 40, first_tokens=2000, turn_tokens=100, answer_tokens=60)
    pool = 5 * live_bytes(layers, 3000) + 2 * design.held_bytes(4000)
    rates = [
        serve(design, layers, trace, pool, cache_class=kind, enable_prefix_caching=True, sample_every=1000).hit_rate
        for kind in (KVCache, ReleaseOrderKVCache)
    ]
    assert rates[0] >= rates[1]
    assert rates[0] > 0.3


def test_every_cache_serves_the_whole_trace_and_ends_empty() -> None:
    layers = layers_of("gemma-3-12b")
    trace = traces.chats(12, 60, 30, sigma=0.5)
    for kind in (KVCache, ReleaseOrderKVCache, StaticPartitionKVCache):
        cache = kind(pool_of(designs_of(layers)["planner"], 2**30), max_step_tokens=256)
        result = simulate(cache, layers, trace, max_step_tokens=256)
        assert result.num_output_tokens == sum(len(item.output) for item in trace)
        assert not any(pool.num_used for pool in cache.pools)


def test_contiguous_reservations_do_not_overlap_and_reuse_gaps() -> None:
    plan = pool_of(uniform_design(layers_of("llama-3.1-8b"), page_tokens=16), 2**28)
    sizes = {0: 500, 1: 700, 2: 400, 3: 900}
    cache = ContiguousCache(plan, sizes.__getitem__)
    assert [cache.admit(sequence) for sequence in (0, 1, 2)] == [0, 0, 0]
    assert cache.admit(3) is None
    cache.free(1)
    sizes[3] = 650
    assert cache.admit(3) == 0
    assert cache.num_reserved == 500 + 400 + 650


def test_beam_search_saves_more_than_parallel_sampling_and_both_save_more_with_width() -> None:
    item = traces.chats(1, 100, 200, sigma=0.1)[0]
    savings = {
        (width, is_beam): experiments._saving(item, width, is_beam=is_beam)
        for width in (2, 4)
        for is_beam in (True, False)
    }
    assert savings[2, True] > savings[2, False] > 0
    assert savings[4, True] > savings[2, True]
    assert savings[4, False] > savings[2, False]


def test_the_report_puts_the_papers_figures_beside_ours() -> None:
    assert "79.586" in report.uniform("llama-3.2-11b-vision", 43, 6193)
