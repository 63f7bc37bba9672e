"""The order in which a small page is found (Jenga section 5.4), one test per step."""

import pytest

from engine.memory.hashing import PageName
from engine.memory.kv_cache import KVCache
from engine.memory.small_pool import SmallPool
from tests.engine.memory.pool_driver import MIXES, plan_of

ALICE, BOB, CAROL = 1, 2, 3


@pytest.fixture
def cache() -> KVCache:
    """Two types, A with three small pages in a large page and B with two; three large pages."""
    return KVCache(plan_of(MIXES["3 : 2"], num_pages=3))


def name_of(name: str) -> PageName:
    return name.encode(), b"content of " + name.encode()


def take(pool: SmallPool, request: int) -> int:
    """A page, which there must be."""
    page = pool.allocate(request)
    assert page is not None
    return page


def publish(pool: SmallPool, page: int, name: str) -> None:
    pool.publish(page, name_of(name), 4)


def is_cached(pool: SmallPool, name: str) -> bool:
    return pool.lookup(name_of(name)) is not None


def large_of(pool: SmallPool, page: int) -> int:
    return page // pool.ratio


def test_1_a_request_first_fills_the_large_page_it_has(cache: KVCache) -> None:
    pool = cache.pools[0]
    alice = take(pool, ALICE)
    bob = take(pool, BOB)
    assert large_of(pool, take(pool, ALICE)) == large_of(pool, alice) != large_of(pool, bob)


def test_2_then_it_takes_an_empty_large_page_although_others_have_empty_small_ones(cache: KVCache) -> None:
    pool = cache.pools[0]
    alice = take(pool, ALICE)
    bob = take(pool, BOB)
    assert large_of(pool, bob) != large_of(pool, alice)


def test_3_then_it_takes_what_finished_requests_have_left_before_anything_is_evicted(cache: KVCache) -> None:
    pool, other = cache.pools
    alice = take(pool, ALICE)
    pool.end_request(ALICE)
    cached = [take(other, BOB), take(other, BOB)]
    for name, page in zip("xy", cached, strict=True):
        publish(other, page, name)
        other.release(page, 1)
    take(pool, BOB)
    carol = take(pool, CAROL)
    assert large_of(pool, carol) == large_of(pool, alice)
    assert is_cached(other, "x")
    again = take(pool, CAROL)
    assert large_of(pool, again) == large_of(pool, alice), "the large page is hers now"


def test_4_then_the_oldest_evictable_large_page_of_any_type_is_taken(cache: KVCache) -> None:
    pool, other = cache.pools
    for step, name in enumerate(["old", "new"], start=1):
        pages = [take(other, step), take(other, step)]
        for index, page in enumerate(pages):
            publish(other, page, f"{name} {index}")
            other.release(page, step)
    take(pool, ALICE)
    bob = take(pool, BOB)
    assert not is_cached(other, "old 0")
    assert not is_cached(other, "old 1")
    assert is_cached(other, "new 0")
    assert cache.large_pool.owner(large_of(pool, bob)) is pool


def test_4_a_large_page_is_as_old_as_its_newest_small_page(cache: KVCache) -> None:
    other = cache.pools[1]
    for request, steps in [(ALICE, (1, 9)), (BOB, (5, 6)), (CAROL, (7, 8))]:
        pages = [take(other, request), take(other, request)]
        for step, page in zip(steps, pages, strict=True):
            publish(other, page, f"{step}")
            other.release(page, step)
    take(cache.pools[0], 4)
    assert [step for step in (1, 9, 5, 6, 7, 8) if not is_cached(other, f"{step}")] == [5, 6]


def test_5_then_it_takes_an_empty_page_beside_those_of_a_running_request(cache: KVCache) -> None:
    pool = cache.pools[0]
    for request in (ALICE, BOB, CAROL):
        take(pool, request)
    take(pool, 4)
    assert pool.num_used == 4
    assert cache.large_pool.num_available == 0


def test_6_at_last_the_oldest_evictable_small_page_of_its_own_type_goes(cache: KVCache) -> None:
    pool = cache.pools[0]
    held = [take(pool, ALICE) for _ in range(9)]
    for step, page in [(3, held[0]), (1, held[3]), (2, held[6])]:
        publish(pool, page, f"{step}")
        pool.release(page, step)
    assert take(pool, BOB) == held[3]
    assert not is_cached(pool, "1")
    assert is_cached(pool, "2")
    assert is_cached(pool, "3")


def test_without_any_of_these_there_is_no_page(cache: KVCache) -> None:
    pool, other = cache.pools
    for _ in range(9):
        take(pool, ALICE)
    assert pool.allocate(BOB) is None
    assert other.allocate(BOB) is None


def test_an_empty_large_page_goes_back_and_serves_another_type(cache: KVCache) -> None:
    pool, other = cache.pools
    pages = [take(pool, ALICE) for _ in range(9)]
    for page in pages[:3]:
        pool.release(page, 1)
    assert other.allocate(BOB) is not None


def test_the_null_page_of_no_type_is_ever_handed_out(cache: KVCache) -> None:
    pool = cache.pools[0]
    pages = [take(pool, ALICE) for _ in range(9)]
    assert min(pages) == pool.ratio, "the small pages of large page 0 are reserved"


def test_a_hit_is_believed_only_when_the_token_ids_agree(cache: KVCache) -> None:
    pool = cache.pools[0]
    page = take(pool, ALICE)
    pool.publish(page, (b"key", b"these tokens"), 4)
    assert pool.lookup((b"key", b"these tokens")) == page
    assert pool.lookup((b"key", b"other tokens")) is None


def test_two_pages_with_the_same_content_are_one_entry_and_the_copy_becomes_empty(cache: KVCache) -> None:
    pool = cache.pools[0]
    first, second = take(pool, ALICE), take(pool, ALICE)
    publish(pool, first, "x")
    publish(pool, second, "x")
    pool.release(second, 1)
    pool.release(first, 1)
    assert pool.lookup(name_of("x")) == first
    assert (pool.num_evictable, pool.num_empty) == (1, 2)
