"""The mirror pool: pages of preempted requests go out together and come back shared as before."""

import pytest

from engine.memory.kv_cache import KVCache
from engine.memory.planning.designs import lcm_design
from engine.memory.spec import LayerSpec, PoolPlan
from engine.memory.swap import MirrorPool, Move, mirror_plan

LAYERS = (LayerSpec("full", 8, "bf16"), LayerSpec("window", 12, "bf16", span=6))


def forked_request(num_mirror_pages: int = 20) -> tuple[KVCache, MirrorPool]:
    design = lcm_design(LAYERS, page_tokens=4)
    plan = PoolPlan(design.types, design.large_page_bytes, 40)
    cache = KVCache(plan, max_step_tokens=16)
    for sequence in (0, 1):
        cache.open(sequence, 7)
    cache.admit(0, [1] * 40, 0, [16])
    cache.extend(0, 0, 14)
    cache.advance(0, [1] * 40, 14)
    cache.fork(0, 1)
    cache.extend(1, 14, 15)
    return cache, MirrorPool(PoolPlan(plan.types, plan.large_page_bytes, num_mirror_pages))


def swapped_out(mirror: MirrorPool, request: int, *tables: list[tuple[int, ...]]) -> tuple[Move, ...]:
    """Moves of a request with these page tables, for which the mirror must have room."""
    moves = mirror.swap_out(request, tables)
    assert moves is not None
    return moves


def test_all_sequences_go_out_together_and_a_shared_page_once() -> None:
    cache, mirror = forked_request()
    tables = [cache.page_table(0), cache.page_table(1)]
    num_bytes, num_moves = mirror.bytes_of(tables)
    moves = swapped_out(mirror, 7, *tables)
    assert (num_bytes, num_moves) == (mirror.used_bytes, len(moves))
    assert len(moves) == sum(len({page for table in tables for page in table[which] if page}) for which in (0, 1))
    assert mirror.used_bytes == sum(mirror.pools[move.layer_type].layer_type.small_page_bytes for move in moves)
    mirror.check_integrity()


def test_what_comes_back_is_what_went_out() -> None:
    cache, mirror = forked_request()
    tables = [cache.page_table(0), cache.page_table(1)]
    out = swapped_out(mirror, 7, *tables)
    assert 7 in mirror
    back = mirror.swap_in(7, tables)
    assert sorted(map(repr, back)) == sorted(map(repr, out))
    assert mirror.used_bytes == 0
    assert 7 not in mirror
    mirror.check_integrity()


def test_a_full_mirror_refuses_and_keeps_nothing() -> None:
    cache, mirror = forked_request(num_mirror_pages=2)
    assert mirror.swap_out(7, [cache.page_table(0), cache.page_table(1)]) is None
    assert mirror.used_bytes == 0
    mirror.check_integrity()


def test_an_aborted_request_leaves_the_mirror() -> None:
    cache, mirror = forked_request()
    mirror.swap_out(7, [cache.page_table(0)])
    mirror.drop(7)
    assert mirror.used_bytes == 0


def test_an_aborted_request_leaves_the_mirror_while_others_stay() -> None:
    cache, mirror = forked_request()
    mirror.swap_out(7, [cache.page_table(0)])
    mirror.swap_out(8, [cache.page_table(1)])
    mirror.drop(7)
    mirror.check_integrity()
    assert mirror.num_requests == 1
    assert 8 in mirror


def test_a_request_that_comes_back_has_its_pages_its_forks_and_its_missing_pages() -> None:
    cache, mirror = forked_request()
    before = [cache.page_table(0), cache.page_table(1)]
    out = swapped_out(mirror, 7, *before)
    for sequence in (0, 1):
        cache.suspend(sequence)
    cache.end_request(7)
    assert cache.is_unused
    cache.check_integrity()
    after = cache.resume([0, 1], mirror.tables(7), [16, 16], 14)
    assert after is not None
    back = mirror.swap_in(7, after)
    for which in (0, 1):
        old_pages = [page for table in before for page in table[which]]
        new_pages = [page for table in after for page in table[which]]
        pairs = set(zip(old_pages, new_pages, strict=True))
        assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs}), "shared as before"
        assert all((old == 0) == (new == 0) for old, new in pairs)
        host_of = {move.device_page: move.host_page for move in out if move.layer_type == which}
        came_from = {move.device_page: move.host_page for move in back if move.layer_type == which}
        assert all(host_of[old] == came_from[new] for old, new in pairs if old)
    cache.check_integrity()
    mirror.check_integrity()
    assert mirror.used_bytes == 0


def test_pages_that_came_back_are_found_by_others_again() -> None:
    design = lcm_design(LAYERS, page_tokens=4)
    cache = KVCache(PoolPlan(design.types, design.large_page_bytes, 6), max_step_tokens=16)
    mirror = MirrorPool(cache.plan)
    text = [1] * 40
    cache.open(0, 7)
    cache.admit(0, text, 0, [21])
    cache.extend(0, 0, 13)
    cache.advance(0, text, 13)
    mirror.swap_out(7, [cache.page_table(0)])
    cache.suspend(0)
    for number in (1, 2):  # other requests need the room: cached pages are evicted
        cache.open(number, number)
        cache.admit(number, [number + 1] * 16, 0, [16])
        cache.extend(number, 0, 16)
        cache.advance(number, [number + 1] * 16, 16)
        cache.close(number)
    cache.open(3, 3)
    assert cache.match(3, text, 20) == 0
    after = cache.resume([0], mirror.tables(7), [20])
    assert after is not None
    mirror.swap_in(7, after)
    cache.extend(0, 13, 17)
    cache.advance(0, text, 17)
    assert cache.match(3, text, 20) == 16
    cache.check_integrity()


def test_a_request_does_not_come_back_where_its_next_token_has_no_room() -> None:
    cache, mirror = forked_request()
    mirror.swap_out(7, [cache.page_table(0)])
    cache.suspend(0)
    cache.close(1)
    assert cache.resume([0], mirror.tables(7), [600]) is None
    assert cache.is_unused
    assert 7 in mirror
    cache.check_integrity()


def test_a_mirror_has_the_pages_that_its_bytes_hold_and_none_without_bytes() -> None:
    cache, _ = forked_request()
    page = cache.plan.large_page_bytes
    assert mirror_plan(cache.plan, 0) is None
    plan = mirror_plan(cache.plan, 5 * page + 1)
    assert plan is not None
    assert plan.pool_bytes == 5 * page
    with pytest.raises(ValueError, match="at least"):
        mirror_plan(cache.plan, 2 * page - 1)
