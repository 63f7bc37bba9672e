"""Pages freed while a step is in flight: used until it has ended, never handed out before, never lost."""

import pytest

from engine.memory.designs import lcm_design
from engine.memory.kv_cache import KVCache
from engine.memory.ledger import take_ledger
from engine.memory.spec import LayerSpec, PoolPlan

FULL, WINDOW = LayerSpec("full", 4, "bf16"), LayerSpec("window", 4, "bf16", span=9)


def cache_of(*layers, num_pages, num_steps=1):
    design = lcm_design(layers, page_tokens=4)
    plan = PoolPlan(design.types, design.large_page_bytes, num_pages + 1)
    return KVCache(plan, max_step_tokens=8, frees_deferred_steps=num_steps)


def start(cache, sequence, tokens):
    cache.open(sequence, sequence)
    hit = cache.admit(sequence, tokens, len(tokens) - 1, [len(tokens)])
    if hit is not None:
        assert cache.extend(sequence, hit, len(tokens)) is not None
        cache.advance(sequence, tokens, len(tokens))
    return hit


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_what_is_freed_in_a_step_can_be_had_so_many_steps_later(num_steps):
    cache = cache_of(FULL, num_pages=2, num_steps=num_steps)
    cache.begin_step(5)
    start(cache, 1, [1] * 7)
    cache.close(1)
    for step in range(5, 5 + num_steps):
        cache.begin_step(step)
        cache.check_integrity()
        assert not cache.can_admit([8])
        assert take_ledger(cache).used_bytes == 2 * cache.plan.large_page_bytes
    cache.begin_step(5 + num_steps)
    cache.check_integrity()
    assert cache.can_admit([8])
    assert cache.is_unused


def test_without_a_delay_it_can_be_had_at_once():
    cache = cache_of(FULL, num_pages=2, num_steps=0)
    start(cache, 1, [1] * 7)
    cache.close(1)
    assert cache.can_admit([8])


def test_a_page_that_waits_to_be_freed_is_still_found():
    cache = cache_of(FULL, num_pages=4)
    start(cache, 1, [1] * 9)
    cache.close(1)
    assert start(cache, 2, [1] * 9) == 8
    cache.begin_step(1)
    cache.check_integrity()
    assert cache.pools[0].num_used == 3, "the delay is over, the new holder stays"


def test_what_falls_out_of_a_window_waits_too():
    cache = cache_of(WINDOW, num_pages=6)
    text = [1] * 24
    cache.open(1, 1)
    cache.admit(1, text, 0, [24])
    for end in (8, 16):
        assert cache.extend(1, end - 8, end) is not None
        cache.advance(1, text, end)
    assert cache.page_table(1)[0][:2] == (0, 0)
    assert cache.pools[0].num_used == 4
    cache.begin_step(1)
    assert cache.pools[0].num_used == 2
    cache.check_integrity()


def test_the_source_of_a_copy_is_not_handed_out_before_it_was_copied():
    cache = cache_of(FULL, num_pages=3)
    start(cache, 1, [1] * 2)
    cache.open(2, 1)
    cache.fork(1, 2)
    (copy,) = cache.extend(2, 2, 3).copies
    cache.close(1)
    cache.open(3, 3)
    assert cache.admit(3, [5] * 4, 0, [4]) == 0
    assert copy.src not in cache.extend(3, 0, 4).changes[0].pages


def test_when_nothing_is_in_flight_the_wait_can_be_ended():
    cache = cache_of(FULL, num_pages=2)
    start(cache, 1, [1] * 7)
    before = cache.release_count
    cache.close(1)
    cache.settle()
    assert cache.is_unused
    assert cache.can_admit([8])
    assert cache.release_count > before


def test_the_release_count_grows_again_when_the_wait_is_over():
    cache = cache_of(FULL, num_pages=2)
    start(cache, 1, [1] * 7)
    cache.close(1)
    before = cache.release_count
    cache.begin_step(1)
    assert cache.release_count > before, "a request that was refused meanwhile must be looked at again"
