"""Pages freed while a step is in flight: used until it has ended, never handed out before, never lost."""

from collections.abc import Sequence

from engine.memory.kv_cache import KVCache
from engine.memory.ledger import take_ledger
from engine.memory.planning.designs import lcm_design
from engine.memory.spec import LayerSpec, PoolPlan
from tests.engine.memory.pool_driver import extended

FULL, WINDOW = LayerSpec("full", 4, "bf16"), LayerSpec("window", 4, "bf16", span=9)


def cache_of(*layers: LayerSpec, num_pages: int) -> KVCache:
    design = lcm_design(layers, page_tokens=4)
    plan = PoolPlan(design.types, design.large_page_bytes, num_pages + 1)
    return KVCache(plan, max_step_tokens=8)


def start(cache: KVCache, sequence: int, tokens: Sequence[int]) -> int | None:
    cache.open(sequence, sequence)
    hit = cache.admit(sequence, tokens, len(tokens) - 1, [len(tokens)])
    if hit is not None:
        assert cache.extend(sequence, hit, len(tokens)) is not None
        cache.advance(sequence, tokens, len(tokens))
    return hit


def launch(cache: KVCache, step: int) -> None:
    cache.begin_step(step)
    cache.note_launch(step)


def test_what_is_freed_can_be_had_when_every_launched_step_has_ended() -> None:
    cache = cache_of(FULL, num_pages=2)
    start(cache, 1, [1] * 7)
    for step in (1, 2, 3):
        launch(cache, step)
    cache.close(1)
    for step in (1, 2):
        cache.note_end(step)
        cache.check_integrity()
        assert not cache.can_admit([8])
        assert take_ledger(cache).used_bytes == 2 * cache.plan.large_page_bytes
    cache.note_end(3)
    cache.check_integrity()
    assert cache.can_admit([8])
    assert cache.is_unused


def test_a_step_launched_later_does_not_hold_up_what_was_freed_before() -> None:
    cache = cache_of(FULL, num_pages=2)
    start(cache, 1, [1] * 7)
    launch(cache, 1)
    cache.close(1)
    launch(cache, 2)
    cache.note_end(1)
    assert cache.is_unused


def test_with_nothing_in_flight_it_can_be_had_at_once() -> None:
    cache = cache_of(FULL, num_pages=2)
    launch(cache, 1)
    cache.note_end(1)
    start(cache, 1, [1] * 7)
    cache.close(1)
    assert cache.can_admit([8])


def test_what_a_step_freed_that_was_never_launched_comes_back_with_the_last_one_in_flight() -> None:
    cache = cache_of(FULL, num_pages=2)
    start(cache, 1, [1] * 7)
    launch(cache, 1)
    cache.begin_step(2)
    cache.close(1)
    cache.note_end(1)
    assert cache.is_unused


def test_a_page_that_waits_to_be_freed_is_still_found() -> None:
    cache = cache_of(FULL, num_pages=4)
    start(cache, 1, [1] * 9)
    launch(cache, 1)
    cache.close(1)
    assert start(cache, 2, [1] * 9) == 8
    cache.note_end(1)
    cache.check_integrity()
    assert cache.pools[0].num_used == 3, "the wait is over, the new holder stays"


def test_what_falls_out_of_a_window_waits_too() -> None:
    cache = cache_of(WINDOW, num_pages=6)
    text = [1] * 24
    cache.open(1, 1)
    cache.admit(1, text, 0, [24])
    launch(cache, 1)
    for end in (8, 16):
        assert cache.extend(1, end - 8, end) is not None
        cache.advance(1, text, end)
    assert cache.page_table(1)[0][:2] == (0, 0)
    assert cache.pools[0].num_used == 4
    cache.note_end(1)
    assert cache.pools[0].num_used == 2
    cache.check_integrity()


def test_the_source_of_a_copy_is_not_handed_out_before_it_was_copied() -> None:
    cache = cache_of(FULL, num_pages=3)
    start(cache, 1, [1] * 2)
    cache.open(2, 1)
    cache.fork(1, 2)
    launch(cache, 1)
    cache.begin_step(2)
    (copy,) = extended(cache, 2, 2, 3).copies
    cache.close(1)
    cache.note_launch(2)
    cache.note_end(1)
    cache.open(3, 3)
    assert cache.admit(3, [5] * 4, 0, [4]) == 0
    assert copy.src not in extended(cache, 3, 0, 4).changes[0].pages


def test_the_release_count_grows_again_when_the_wait_is_over() -> None:
    cache = cache_of(FULL, num_pages=2)
    start(cache, 1, [1] * 7)
    launch(cache, 1)
    cache.close(1)
    before = cache.release_count
    cache.note_end(1)
    assert cache.release_count > before, "a request that was refused meanwhile must be looked at again"
