"""What vLLM's tests of single kinds of layers pin for windows and chunks (test_single_type_kv_cache_manager.py).

Its truth tables of hits are in tests/engine/memory/policies/test_hit_lengths.py.
"""

import itertools

import pytest

from engine.memory.kv_cache import KVCache
from engine.memory.policies import ChunkedPolicy, WindowPolicy
from engine.memory.spec import NULL_PAGE, LayerSpec
from tests.engine.memory.peers.cache_user import cache_of, end, find, go_on, start
from tests.engine.memory.pool_driver import extended

WINDOW, CHUNKED = LayerSpec("window", 4, "bf16", span=4), LayerSpec("chunked", 4, "bf16", span=4)


def num_dropped(cache: KVCache, sequence: int) -> list[int]:
    return [table.count(NULL_PAGE) for table in cache.page_table(sequence)]


@pytest.mark.parametrize(("num_tokens", "dropped"), [(4, 0), (5, 1), (6, 1), (7, 2), (11, 4)])
def test_a_page_is_dropped_with_the_last_token_that_the_window_still_reads(num_tokens: int, dropped: int) -> None:
    cache = cache_of(WINDOW, num_pages=40, page_tokens=2)
    start(cache, 0, [1] * num_tokens)
    assert num_dropped(cache, 0) == [dropped]


@pytest.mark.parametrize(("num_tokens", "dropped"), [(3, 0), (4, 2), (6, 2), (8, 4), (12, 6)])
def test_all_pages_of_a_chunk_are_dropped_at_its_end(num_tokens: int, dropped: int) -> None:
    cache = cache_of(CHUNKED, num_pages=40, page_tokens=2)
    start(cache, 0, [1] * num_tokens)
    assert num_dropped(cache, 0) == [dropped]


def test_of_dropped_pages_the_one_further_into_the_text_goes_first() -> None:
    cache = cache_of(WINDOW, num_pages=6, page_tokens=2)
    start(cache, 0, [1] * 11)
    assert num_dropped(cache, 0) == [4]
    third, fourth = ([1] * 6, [1] * 8)
    assert [find(cache, third), find(cache, fourth)] == [6, 8]
    start(cache, 1, [2])
    assert [find(cache, third), find(cache, fourth)] == [6, 6]


@pytest.mark.parametrize("num_pages", range(1, 7))
def test_the_hits_of_a_chunk_by_all_patterns_of_cached_pages(num_pages: int) -> None:
    """Definition: the pages of the chunk in which the prefix ends, up to that end, are all cached."""
    policy = ChunkedPolicy(2, 4)
    for cached in itertools.product([False, True], repeat=num_pages):
        lengths = [n for n in range(num_pages + 1) if all(cached[n // 2 * 2 : n])]
        for tail in (0, 1):
            found = policy.longest_hit(cached.__getitem__, 2 * num_pages + tail, ())
            assert found == 2 * max(lengths)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 6])
def test_the_hits_of_a_window_by_all_patterns_of_cached_pages(window: int) -> None:
    """Definition: every page with a token that the next one reads is cached."""
    policy = WindowPolicy(2, window)
    for cached in itertools.product([False, True], repeat=6):
        lengths = [n for n in range(7) if all(cached[max(0, 2 * n - window + 1) // 2 : n])]
        assert policy.longest_hit(cached.__getitem__, 12, ()) == 2 * max(lengths)


@pytest.mark.parametrize("layer", [WINDOW, CHUNKED, LayerSpec("window", 4, "bf16", span=8)])
def test_an_extension_takes_as_many_pages_as_admission_has_counted(layer: LayerSpec) -> None:
    """Whatever a step adds, held pages never exceed what the admission rule says for that length."""
    cache = cache_of(layer, num_pages=60, page_tokens=2, max_step_tokens=4)
    text = [1] * 60
    cache.open(0, 0)
    cache.admit(0, text, 0, [60])
    for stop in range(4, 61, 4):
        assert cache.extend(0, stop - 4, stop) is not None
        assert cache.pools[0].num_used <= cache.rule.needs([stop])[0]
        cache.advance(0, text, stop)
    assert cache.pools[0].num_used <= cache.rule.needs([60])[0] < 30


@pytest.mark.parametrize(("num_pages", "hit"), [(17, None), (18, 20)])
def test_null_pages_of_a_hit_do_not_count_as_pages_that_are_there(num_pages: int, hit: int | None) -> None:
    """The request needs 18 pages at once; its hit of ten entries brings two, so that 16 others must be free."""
    cache = cache_of(LayerSpec("window", 4, "bf16", span=5), num_pages=num_pages, page_tokens=2, max_step_tokens=40)
    start(cache, 0, [1] * 20)
    assert cache.pools[0].num_used == 2
    assert start(cache, 1, [1] * 20 + [2] * 16) == hit
    cache.check_integrity()


def test_a_cached_page_is_not_taken_twice() -> None:
    cache = cache_of(WINDOW, num_pages=2, page_tokens=2)
    start(cache, 0, [1, 1])
    end(cache, 0)
    assert cache.large_pool.num_evictable == 1
    assert start(cache, 1, [1, 1, 2, 2]) == 2
    assert len(set(cache.page_table(1)[0])) == 2
    assert cache.large_pool.num_available == 0


def test_an_extension_to_less_than_there_is_takes_nothing() -> None:
    cache = cache_of(LayerSpec("full", 4, "bf16"), num_pages=10, page_tokens=4)
    cache.open(0, 0)
    cache.admit(0, [1] * 12, 0, [12])
    cache.extend(0, 0, 12)
    before = cache.large_pool.num_empty
    extension = extended(cache, 0, 0, 4)
    assert (extension.changes, extension.copies) == ((), ())
    assert cache.large_pool.num_empty == before


def test_a_long_generation_holds_a_window_and_no_more() -> None:
    cache = cache_of(LayerSpec("window", 4, "bf16", span=8), num_pages=8, page_tokens=4, max_step_tokens=4)
    text = [1] * 4
    start(cache, 0, text)
    for token in range(200):
        text.append(token)
        go_on(cache, 0, text, len(text) - 1)
        assert cache.pools[0].num_used <= 3
    cache.check_integrity()
