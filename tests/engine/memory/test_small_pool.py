"""The order in which a small page is found (Jenga section 5.4), one test per step."""

import pytest

from engine.memory.kv_cache import KVCache
from tests.engine.memory.pool_driver import MIXES, plan_of

ALICE, BOB, CAROL = 1, 2, 3


@pytest.fixture
def cache():
    """Two types, A with three small pages in a large page and B with two; three large pages."""
    return KVCache(plan_of(MIXES["3 : 2"], num_pages=3))


def name_of(name):
    return name.encode(), b"content of " + name.encode()


def publish(pool, page, name, prefix_tokens=4):
    pool.publish(page, name_of(name), prefix_tokens)


def is_cached(pool, name):
    return pool.lookup(name_of(name)) is not None


def large_of(pool, page):
    return page // pool.ratio


def test_1_a_request_first_fills_the_large_page_it_has(cache):
    pool = cache.pools[0]
    alice = pool.allocate(ALICE)
    bob = pool.allocate(BOB)
    assert large_of(pool, pool.allocate(ALICE)) == large_of(pool, alice) != large_of(pool, bob)


def test_2_then_it_takes_an_empty_large_page_although_others_have_empty_small_ones(cache):
    pool = cache.pools[0]
    alice = pool.allocate(ALICE)
    bob = pool.allocate(BOB)
    assert large_of(pool, bob) != large_of(pool, alice)


def test_3_then_it_takes_what_finished_requests_have_left_before_anything_is_evicted(cache):
    pool, other = cache.pools
    alice = pool.allocate(ALICE)
    pool.end_request(ALICE)
    cached = [other.allocate(BOB), other.allocate(BOB)]
    for name, page in zip("xy", cached, strict=True):
        publish(other, page, name)
        other.release(page, 1)
    pool.allocate(BOB)
    carol = pool.allocate(CAROL)
    assert large_of(pool, carol) == large_of(pool, alice)
    assert is_cached(other, "x")
    again = pool.allocate(CAROL)
    assert large_of(pool, again) == large_of(pool, alice), "the large page is hers now"


def test_4_then_the_oldest_evictable_large_page_of_any_type_is_taken(cache):
    pool, other = cache.pools
    for step, name in enumerate(["old", "new"], start=1):
        pages = [other.allocate(step), other.allocate(step)]
        for index, page in enumerate(pages):
            publish(other, page, f"{name} {index}")
            other.release(page, step)
    pool.allocate(ALICE)
    bob = pool.allocate(BOB)
    assert not is_cached(other, "old 0")
    assert not is_cached(other, "old 1")
    assert is_cached(other, "new 0")
    assert cache.large_pool.owner(large_of(pool, bob)) is pool


def test_4_a_large_page_is_as_old_as_its_newest_small_page(cache):
    other = cache.pools[1]
    for request, steps in [(ALICE, (1, 9)), (BOB, (5, 6)), (CAROL, (7, 8))]:
        pages = [other.allocate(request), other.allocate(request)]
        for step, page in zip(steps, pages, strict=True):
            publish(other, page, f"{step}")
            other.release(page, step)
    cache.pools[0].allocate(4)
    assert [step for step in (1, 9, 5, 6, 7, 8) if not is_cached(other, f"{step}")] == [5, 6]


def test_5_then_it_takes_an_empty_page_beside_those_of_a_running_request(cache):
    pool = cache.pools[0]
    for request in (ALICE, BOB, CAROL):
        pool.allocate(request)
    dave = pool.allocate(4)
    assert dave is not None
    assert pool.num_used == 4
    assert cache.large_pool.num_available == 0


def test_6_at_last_the_oldest_evictable_small_page_of_its_own_type_goes(cache):
    pool = cache.pools[0]
    held = [pool.allocate(ALICE) for _ in range(9)]
    for step, page in [(3, held[0]), (1, held[3]), (2, held[6])]:
        publish(pool, page, f"{step}")
        pool.release(page, step)
    assert pool.allocate(BOB) == held[3]
    assert not is_cached(pool, "1")
    assert is_cached(pool, "2")
    assert is_cached(pool, "3")


def test_without_any_of_these_there_is_no_page(cache):
    pool, other = cache.pools
    assert [pool.allocate(ALICE) for _ in range(9)].count(None) == 0
    assert pool.allocate(BOB) is None
    assert other.allocate(BOB) is None


def test_an_empty_large_page_goes_back_and_serves_another_type(cache):
    pool, other = cache.pools
    pages = [pool.allocate(ALICE) for _ in range(9)]
    for page in pages[:3]:
        pool.release(page, 1)
    assert other.allocate(BOB) is not None


def test_the_null_page_of_no_type_is_ever_handed_out(cache):
    pool = cache.pools[0]
    pages = [pool.allocate(ALICE) for _ in range(9)]
    assert min(pages) == pool.ratio, "the small pages of large page 0 are reserved"


def test_a_hit_is_believed_only_when_the_token_ids_agree(cache):
    pool = cache.pools[0]
    page = pool.allocate(ALICE)
    pool.publish(page, (b"key", b"these tokens"), 4)
    assert pool.lookup((b"key", b"these tokens")) == page
    assert pool.lookup((b"key", b"other tokens")) is None


def test_two_pages_with_the_same_content_are_one_entry_and_the_copy_becomes_empty(cache):
    pool = cache.pools[0]
    first, second = pool.allocate(ALICE), pool.allocate(ALICE)
    publish(pool, first, "x")
    publish(pool, second, "x")
    pool.release(second, 1)
    pool.release(first, 1)
    assert pool.lookup(name_of("x")) == first
    assert (pool.num_evictable, pool.num_empty) == (1, 2)
