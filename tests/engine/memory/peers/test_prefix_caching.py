"""What vLLM's tests of prefix caching pin (tests/v1/core/test_prefix_caching.py), in our terms."""

import itertools

import pytest

from engine.memory.images import ImageSpan
from engine.memory.ledger import take_ledger
from engine.memory.spec import NULL_PAGE, LayerSpec
from tests.engine.memory.peers.cache_user import cache_of, end, evict, fill, find, go_on, page_names, start

FULL = LayerSpec("full", 4, "bf16")
COMMON = [token for token in range(3) for _ in range(16)]  # three full pages of 16


def test_pages_that_are_not_full_have_no_name() -> None:
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    start(cache, 0, [*COMMON, *[3] * 7])
    ((first, second, third, partial),) = cache.page_table(0)
    assert sorted(cache.pools[0].published_pages()) == sorted([first, second, third])
    assert cache.pools[0].ref_counts == {first: 1, second: 1, third: 1, partial: 1}


def test_a_prefix_in_use_is_shared_and_counted_twice() -> None:
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    start(cache, 0, [*COMMON, *[3] * 7])
    assert start(cache, 1, [*COMMON, *[4] * 5]) == 48
    ((*shared, new),) = cache.page_table(1)
    assert shared == list(cache.page_table(0)[0][:3])
    assert [cache.pools[0].ref_counts[page] for page in (*shared, new)] == [2, 2, 2, 1]
    assert cache.large_pool.num_empty == 5


def test_when_all_have_ended_all_pages_can_be_had_and_what_is_cached_goes_last_its_end_first() -> None:
    """The order in which a request of the whole pool gets its pages. vLLM's is the same; ours follows from age and
    position, not from the order of release."""
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    start(cache, 0, [*COMMON, *[3] * 7])
    start(cache, 1, [*COMMON, *[4] * 5])
    common = cache.page_table(0)[0][:3]
    end(cache, 0)
    end(cache, 1)
    assert (cache.large_pool.num_empty, cache.large_pool.num_evictable) == (7, 3)
    assert start(cache, 2, [99] * 160) == 0
    assert cache.page_table(2)[0][7:] == common[::-1]
    assert find(cache, COMMON) == 0


def test_of_a_prompt_that_is_cached_to_its_last_token_one_page_is_computed_again() -> None:
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    start(cache, 0, COMMON)
    assert start(cache, 1, COMMON) == 32


def test_what_was_generated_is_found_by_the_next_turn() -> None:
    cache = cache_of(FULL, num_pages=20, page_tokens=16)
    conversation = [*COMMON, *[3] * 7]
    start(cache, 0, conversation)
    for token in range(100, 130):
        conversation.append(token)
        go_on(cache, 0, conversation, len(conversation) - 1)
    end(cache, 0)
    assert find(cache, conversation) == len(conversation) // 16 * 16


def test_a_page_with_new_content_is_not_found_under_its_old_name() -> None:
    cache = cache_of(FULL, num_pages=2, page_tokens=16)
    start(cache, 0, COMMON[:16])
    end(cache, 0)
    start(cache, 1, [7] * 32)
    end(cache, 1)
    assert find(cache, COMMON[:16]) == 0
    assert find(cache, [7] * 32) == 32


def test_the_pages_of_a_hit_are_not_evicted_for_the_rest_of_the_same_prompt() -> None:
    cache = cache_of(FULL, num_pages=4, page_tokens=16)
    start(cache, 0, COMMON[:32])
    end(cache, 0)
    start(cache, 1, [7] * 32)
    end(cache, 1)
    assert start(cache, 2, [*COMMON[:32], *[8] * 32]) == 32
    assert find(cache, COMMON[:32]) == 32
    assert find(cache, [7] * 32) == 0


def test_a_hit_that_leaves_too_little_room_is_given_back_untouched() -> None:
    cache = cache_of(FULL, num_pages=6, page_tokens=16)
    start(cache, 0, [7] * 40)
    start(cache, 1, COMMON[:32])
    end(cache, 1)
    before = take_ledger(cache)
    assert start(cache, 2, [*COMMON[:32], *[8] * 32]) is None
    assert take_ledger(cache) == before
    assert find(cache, COMMON[:32]) == 32
    cache.check_integrity()


def test_the_least_recently_used_text_goes_first() -> None:
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    texts = [[index] * 48 for index in range(3)]
    for step, text in enumerate(texts):
        cache.begin_step(step)
        start(cache, step, text)
        end(cache, step)
    cache.begin_step(3)
    assert start(cache, 3, [*texts[0], 1]) == 48
    end(cache, 3)
    cache.begin_step(4)
    start(cache, 4, [9] * 64)
    assert [find(cache, text) for text in texts] == [48, 0, 48]


def test_a_page_that_is_computed_again_takes_the_place_of_the_cached_one() -> None:
    """A prompt sent again, whose length is a whole number of pages: its last page is computed anew. If the old one kept
    the name it would be the first to go, and all that follows it could not be found any more."""
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    start(cache, 0, COMMON)
    end(cache, 0)
    for step in (1, 2):
        cache.begin_step(step)
        assert start(cache, step, COMMON) == 32
        assert (cache.large_pool.num_empty, cache.large_pool.num_evictable) == (7, 0)
        end(cache, step)
    cache.begin_step(3)
    start(cache, 3, [7] * 16)
    end(cache, 3)
    cache.begin_step(4)
    answer = [*COMMON, *[5] * 48]
    start(cache, 4, answer)
    cache.begin_step(5)
    start(cache, 5, [8] * 64)  # takes the three pages that are empty and the oldest cached one
    end(cache, 4)
    assert find(cache, answer) == 96
    cache.check_integrity()


def test_two_sequences_that_write_the_same_text_at_once_leave_one_entry() -> None:
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    for sequence in (0, 1):
        cache.open(sequence, sequence)
        assert cache.admit(sequence, COMMON, 32, [48]) == 0
    for sequence in (0, 1):
        go_on(cache, sequence, COMMON, 0)
    assert len(cache.pools[0].published_pages()) == 3
    end(cache, 0)
    end(cache, 1)
    assert (cache.large_pool.num_empty, cache.large_pool.num_evictable) == (7, 3)


def test_an_image_separates_texts_from_its_page_on() -> None:
    layers = (FULL, LayerSpec("cross", 4, "bf16"))
    cache = cache_of(*layers, num_pages=40, page_tokens=16)
    cat, dog = (ImageSpan(20, 24, key) for key in (b"cat", b"dog"))
    start(cache, 0, [*COMMON, 3], images=(cat,))
    assert find(cache, COMMON, images=(cat,)) == 48
    assert find(cache, COMMON, images=(dog,)) == 16
    assert find(cache, COMMON) == 16


def test_a_salt_separates_texts_from_the_first_page_on() -> None:
    cache = cache_of(FULL, num_pages=10, page_tokens=16)
    start(cache, 0, [*COMMON, 3], salt=b"one")
    assert find(cache, COMMON, salt=b"one") == 48
    assert find(cache, COMMON, salt=b"other") == 0
    assert find(cache, COMMON) == 0


#: Full attention and two windows of two pages; they differ by a token, so that they are not in lockstep.
HYBRID = (FULL, LayerSpec("window", 4, "bf16", span=32), LayerSpec("window", 4, "bf16", span=31))


@pytest.mark.parametrize(
    ("evicted", "num_pages"),
    [
        ((), 3),
        (((1, 0), (2, 0)), 3),  # outside the windows
        (((0, 0),), 0),  # the beginning for full attention
        (((0, 2), (1, 2), (2, 2)), 2),
        (((0, 2),), 2),
        (((1, 2),), 2),
        (((2, 2),), 2),
        (((0, 2), (1, 0), (2, 0)), 0),  # full attention has two pages, the windows end after three or none
    ],
)
def test_a_hit_of_full_attention_and_windows_by_what_was_evicted(
    evicted: tuple[tuple[int, int], ...], num_pages: int
) -> None:
    cache = cache_of(*HYBRID, num_pages=12, page_tokens=16)
    start(cache, 0, [*COMMON, 3])
    end(cache, 0)
    fill(cache)
    for which, index in evicted:
        group = cache.groups[which]
        evict(cache, group, page_names(cache, group, COMMON)[index])
    assert find(cache, COMMON) == 16 * num_pages
    for pool in cache.pools:
        pool.check_integrity()


def test_pages_outside_a_window_are_the_null_page_in_a_hit() -> None:
    cache = cache_of(*HYBRID, num_pages=30, page_tokens=16)
    start(cache, 0, [*COMMON, 3])
    assert start(cache, 1, [*COMMON, 4]) == 48
    full, *windows = cache.page_table(1)
    assert NULL_PAGE not in full
    assert [table[0] for table in windows] == [NULL_PAGE, NULL_PAGE]
    assert [table[1:3] for table in windows] == [table[1:3] for table in cache.page_table(0)[1:]]


KINDS = {
    "full": FULL,
    "small": LayerSpec("full", 2, "bf16"),
    "window": LayerSpec("window", 4, "bf16", span=32),
    "wide": LayerSpec("window", 4, "bf16", span=64),
    "chunked": LayerSpec("chunked", 4, "bf16", span=16),
    "state": LayerSpec("recurrent", 16, "bf16", span=16),
}


@pytest.mark.parametrize("kinds", [kinds for size in (1, 2, 3, 4) for kinds in itertools.combinations(KINDS, size)])
def test_a_prefix_is_found_whatever_the_layers(kinds: tuple[str, ...]) -> None:
    cache = cache_of(*(KINDS[kind] for kind in kinds), num_pages=200, page_tokens=16)
    start(cache, 0, [*COMMON, *[3] * 7])
    cache.begin_step(1)
    assert start(cache, 1, [*COMMON, *[4] * 5]) == 48
    end(cache, 0)
    end(cache, 1)
    cache.check_integrity()
    assert cache.is_unused
