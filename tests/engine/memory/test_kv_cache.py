"""The page cache as the scheduler uses it: hits, forks, extensions, eviction, dropped pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from engine.memory.images import Images
from engine.memory.kv_cache import KVCache
from engine.memory.ledger import picture, take_ledger
from engine.memory.policies import FullPolicy, policy_for
from engine.memory.spec import NULL_PAGE
from tests.engine.memory.pool_driver import MIXES, PAGE_TOKENS, extended, plan_of

TEXT = list(range(100, 111))  # two full pages of four tokens and three more


def filled(cache: KVCache, sequence: int, tokens: Sequence[int], salt: bytes = b"") -> int | None:
    """Open, admit and write a sequence; returns how much of it came from the cache."""
    cache.open(sequence, sequence, salt)
    num_hit = cache.admit(sequence, tokens, len(tokens) - 1, [len(tokens)])
    if num_hit is not None:
        cache.extend(sequence, num_hit, len(tokens))
        cache.advance(sequence, tokens, len(tokens))
    return num_hit


@pytest.fixture(params=sorted(MIXES))
def cache(request: pytest.FixtureRequest) -> KVCache:
    return KVCache(plan_of(MIXES[request.param], num_pages=40))


def test_a_prefix_is_found_up_to_its_last_full_page(cache: KVCache) -> None:
    filled(cache, 1, TEXT)
    assert filled(cache, 2, [*TEXT, 7]) == 8


def test_at_least_one_token_is_left_to_compute(cache: KVCache) -> None:
    filled(cache, 1, TEXT[:8])
    assert filled(cache, 2, TEXT[:8]) == 4


def test_a_prefix_stays_cached_after_its_sequence_is_gone(cache: KVCache) -> None:
    filled(cache, 1, TEXT)
    cache.close(1)
    assert cache.is_unused
    assert filled(cache, 2, TEXT) == 8


def test_shared_prefixes_are_held_once(cache: KVCache) -> None:
    filled(cache, 1, TEXT)
    filled(cache, 2, TEXT)
    for first, second in zip(cache.page_table(1), cache.page_table(2), strict=True):
        assert first[:2] == second[:2]
        assert first[2] != second[2]


def test_nothing_is_shared_across_salts(cache: KVCache) -> None:
    filled(cache, 1, TEXT, salt=b"one")
    assert filled(cache, 2, TEXT, salt=b"two") == 0
    assert filled(cache, 3, TEXT, salt=b"one") == 8


def test_nothing_is_found_with_the_cache_switched_off() -> None:
    cache = KVCache(plan_of(MIXES["1"], num_pages=8), enable_prefix_caching=False)
    filled(cache, 1, TEXT)
    cache.close(1)
    assert filled(cache, 2, TEXT) == 0


def test_without_caching_the_whole_pool_is_empty_and_stays_so_until_it_goes_on(cache: KVCache) -> None:
    filled(cache, 1, TEXT)
    cache.close(1)
    cache.stop_caching()
    assert cache.large_pool.num_empty == cache.plan.num_usable_large_pages
    assert filled(cache, 2, TEXT) == 0
    cache.close(2)
    assert cache.large_pool.num_empty == cache.plan.num_usable_large_pages
    cache.check_integrity()
    cache.go_on_caching()
    filled(cache, 3, TEXT)
    assert filled(cache, 4, TEXT) == 8


def test_a_hit_is_valid_only_as_far_as_every_type_has_it() -> None:
    cache = KVCache(plan_of(MIXES["1 : 5"], num_pages=4))
    filled(cache, 1, TEXT[:9])
    cache.close(1)
    cache.pools[0].allocate(2)
    cache.pools[0].allocate(2)  # evicts the second page of this type; the other type keeps both
    assert cache.pools[1].num_evictable == 2
    cache.open(2, 2)
    assert cache.match(2, TEXT, len(TEXT)) == 4


def test_a_fork_shares_all_pages_and_copies_the_last_one_when_it_is_written(cache: KVCache) -> None:
    filled(cache, 1, TEXT)
    cache.open(2, 1)
    cache.fork(1, 2)
    assert cache.page_table(1) == cache.page_table(2)
    extension = extended(cache, 2, len(TEXT), len(TEXT) + 1)
    assert len(extension.copies) == len(cache.pools)
    for copy, before, after in zip(extension.copies, cache.page_table(1), cache.page_table(2), strict=True):
        assert (copy.src, copy.dst) == (before[2], after[2])
        assert before[:2] == after[:2]


def test_the_last_holder_of_a_shared_page_writes_in_place(cache: KVCache) -> None:
    filled(cache, 1, TEXT)
    cache.open(2, 1)
    cache.fork(1, 2)
    cache.extend(2, len(TEXT), len(TEXT) + 1)
    assert extended(cache, 1, len(TEXT), len(TEXT) + 1).copies == ()


def test_a_fork_at_a_page_boundary_copies_nothing(cache: KVCache) -> None:
    filled(cache, 1, TEXT[:8])
    cache.open(2, 1)
    cache.fork(1, 2)
    for sequence in (1, 2):
        assert extended(cache, sequence, 8, 9).copies == ()


def test_an_extension_without_room_changes_nothing() -> None:
    cache = KVCache(plan_of(MIXES["3 : 2"], num_pages=2))
    filled(cache, 1, TEXT[:8])
    before = take_ledger(cache), cache.page_table(1)
    assert cache.extend(1, 8, 17) is None
    assert (take_ledger(cache), cache.page_table(1)) == before


def test_types_do_not_take_each_others_last_large_page() -> None:
    """One large page is left and both types need a small page. Only the first type has an empty small page, in
    another request's large page. In the plain order of allocation it would take the large page instead."""
    cache = KVCache(plan_of(MIXES["3 : 2"], num_pages=3))
    filled(cache, 1, TEXT[:8])  # two of three small pages of A, two of two of B
    assert cache.large_pool.num_empty == 1
    cache.open(2, 2)
    assert cache.admit(2, [1, 2], 1, [2]) == 0
    assert cache.extend(2, 0, 2) is not None
    cache.check_integrity()


def test_what_another_type_has_left_half_cached_can_be_had() -> None:
    """A large page with one cached and some empty pages is neither empty nor evictable; it must not be lost."""
    cache = KVCache(plan_of(MIXES["3 : 2"], num_pages=2))
    filled(cache, 1, TEXT[:5])
    cache.close(1)
    cache.end_request(1)
    assert cache.large_pool.num_empty == 0
    assert filled(cache, 2, list(range(8))) == 0


def test_hits_are_held_before_room_is_counted() -> None:
    cache = KVCache(plan_of(MIXES["1"], num_pages=3))
    filled(cache, 1, TEXT[:9])
    cache.close(1)
    assert filled(cache, 2, TEXT[:9]) == 8, "its own cached prefix is no room for its new pages"


def test_of_one_prompt_the_end_is_evicted_before_the_beginning() -> None:
    cache = KVCache(plan_of(MIXES["1"], num_pages=4))
    cache.begin_step(1)
    filled(cache, 1, TEXT)
    cache.close(1)
    cache.begin_step(2)
    filled(cache, 2, list(range(9)))
    cache.open(3, 3)
    assert cache.match(3, TEXT, len(TEXT)) == 4


def test_a_prefix_used_later_outlives_one_used_earlier() -> None:
    cache = KVCache(plan_of(MIXES["1"], num_pages=5))
    other = list(range(8))
    for step, tokens in enumerate((TEXT[:8], other), start=1):
        cache.begin_step(step)
        filled(cache, step, tokens)
        cache.close(step)
    cache.begin_step(3)
    filled(cache, 3, [50] * 9)
    cache.open(4, 4)
    assert cache.match(4, [*other, 1], 8) == 8
    assert cache.match(4, [*other, 1], 7) == 4
    cache.open(5, 5)
    assert cache.match(5, [*TEXT[:8], 1], 8) == 0


def test_the_ledger_tells_unfilled_positions_once_per_shared_page(cache: KVCache) -> None:
    filled(cache, 1, TEXT)
    cache.open(2, 1)
    cache.fork(1, 2)
    slot_bytes = sum(pool.layer_type.small_page_bytes // PAGE_TOKENS for pool in cache.pools)
    assert take_ledger(cache).tail_waste_bytes == slot_bytes


def test_the_picture_shows_which_type_holds_which_large_page() -> None:
    cache = KVCache(plan_of(MIXES["1"], num_pages=4))
    filled(cache, 1, TEXT[:4])
    filled(cache, 2, TEXT[:4])
    cache.close(2)
    cells = picture(cache)
    assert [cell.layer_type for cell in cells] == ["main.full", None, None, None]
    assert cells[0].used == 1.0


@dataclass(frozen=True)
class LastPageOnly(FullPolicy):
    """A kind of layer that reads only the page being written, to see the facade drop pages."""

    def first_live_page(self, num_computed: int, images: Images) -> int:
        return num_computed // self.page_tokens

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        lengths = range(max_tokens - max_tokens % self.page_tokens, 0, -self.page_tokens)
        return next((length for length in lengths if is_cached(length // self.page_tokens - 1)), 0)


def test_pages_that_no_layer_reads_again_are_dropped_and_not_asked_for_in_a_hit() -> None:
    cache = KVCache(plan_of(MIXES["3 : 2"], num_pages=10))
    cache.groups[1] = replace(cache.groups[1], policy=LastPageOnly(PAGE_TOKENS))
    cache._use_groups()
    filled(cache, 1, TEXT)
    full, last = cache.page_table(1)
    assert NULL_PAGE not in full
    assert last[:2] == (NULL_PAGE, NULL_PAGE)
    assert filled(cache, 2, TEXT) == 8
    assert cache.page_table(2)[1][:2] == (NULL_PAGE, NULL_PAGE)
    cache.check_integrity()
    cache.close(1)
    cache.close(2)
    cache.check_integrity()
    assert cache.is_unused


def test_every_layer_kind_has_a_policy() -> None:
    assert policy_for(plan_of(MIXES["1"], 1).types[0]) == FullPolicy(PAGE_TOKENS)
