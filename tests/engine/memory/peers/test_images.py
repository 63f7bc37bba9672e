"""What vLLM's tests of its encoder cache pin (test_encoder_cache_manager.py), in our terms: here images lie in pages of
the one pool."""

import pytest

from engine.memory.images import ImageSpan
from engine.memory.kv_cache import KVCache
from engine.memory.spec import LayerSpec
from tests.engine.memory.peers.cache_user import cache_of, end, evict, fill, find, go_on, page_names, start

FULL, CROSS, VISION = LayerSpec("full", 4, "bf16"), LayerSpec("cross", 4, "bf16"), LayerSpec("vision", 4, "bf16")
CAT, DOG = ImageSpan(2, 10, b"cat", 0), ImageSpan(2, 10, b"dog", 0)  # three pages each


def num_encoded(cache: KVCache) -> int:
    return cache.counters.num_encoded_images


def test_an_image_is_encoded_once_for_all_its_requests() -> None:
    cache = cache_of(FULL, CROSS, num_pages=60)
    start(cache, 0, [1] * 6, images=(CAT,))
    start(cache, 1, [2] * 6, images=(CAT,))
    assert num_encoded(cache) == 1
    assert cache.page_table(0)[1] == cache.page_table(1)[1]
    start(cache, 2, [1] * 6, images=(DOG,))
    assert num_encoded(cache) == 2
    cache.check_integrity()


def test_an_image_stays_cached_after_its_last_request_and_is_found_at_another_place() -> None:
    cache = cache_of(FULL, CROSS, num_pages=60)
    start(cache, 0, [1] * 6, images=(CAT,))
    end(cache, 0)
    assert cache.is_unused
    start(cache, 1, [7] * 9, images=(ImageSpan(5, 10, b"cat", 0),))
    assert num_encoded(cache) == 1


def test_an_image_in_use_is_never_evicted() -> None:
    cache = cache_of(CROSS, FULL, num_pages=8)
    start(cache, 0, [1] * 3, images=(CAT,))
    assert cache.pools[0].num_used + cache.pools[1].num_used == 4
    assert start(cache, 1, [2] * 12, images=(DOG,)) is None
    assert start(cache, 2, [3] * 12) == 0
    assert cache.pools[0].num_used == 3
    cache.check_integrity()


def test_one_of_two_unused_images_is_evicted_as_a_whole() -> None:
    """Among equally old images a hash of the content decides, so whole images are evicted, not a page of each."""
    cache = cache_of(FULL, CROSS, num_pages=8)
    for sequence, image in enumerate((CAT, DOG)):
        start(cache, sequence, [sequence] * 3, images=(image,))
    for sequence in (0, 1):
        end(cache, sequence)
    fill(cache)
    for _ in range(3):
        cache.pools[0].allocate(99)
    assert cache.pools[1].num_evictable == 3
    left = [find_image(cache, image) for image in (CAT, DOG)]
    assert sorted(left) == [False, True]


def find_image(cache: KVCache, image: ImageSpan) -> bool:
    group = cache.groups[1]
    names = page_names(cache, group, [0] * 3, (image,))
    assert len(names) == 3
    return all(group.pool.lookup(name) is not None for name in names)


def test_a_request_whose_images_never_fit_is_refused_and_not_queued() -> None:
    cache = cache_of(FULL, CROSS, num_pages=6)
    assert cache.rule.fits_ever([4], 0, (CAT,))
    assert not cache.rule.fits_ever([4], 0, (CAT, ImageSpan(3, 40, b"huge", 0)))


@pytest.mark.parametrize("step_tokens", [1, 3, 16])
def test_embeddings_are_dropped_when_the_tokens_of_their_image_are_computed(step_tokens: int) -> None:
    image = ImageSpan(3, 8, b"cat", 8)
    cache = cache_of(FULL, VISION, num_pages=40)
    text = [1] * 14
    cache.open(0, 0, images=(image,))
    cache.admit(0, text, 0, [14])
    held = []
    for position in range(0, 14, step_tokens):
        stop = min(position + step_tokens, 14)
        go_on(cache, 0, text[:stop], position)
        held.append((stop, cache.pools[1].num_used))
    assert all(num_used == (2 if 3 < stop < 11 else 0) for stop, num_used in held)


def test_a_prefix_that_ends_inside_an_image_needs_its_embeddings() -> None:
    image = ImageSpan(4, 8, b"cat", 8)
    cache = cache_of(FULL, VISION, num_pages=8, page_tokens=4)
    text = [1] * 16
    start(cache, 0, text, images=(image,))
    end(cache, 0)
    assert find(cache, text[:8], images=(image,)) == 8
    fill(cache)
    vision = cache.groups[1]
    evict(cache, vision, page_names(cache, vision, text, (image,))[1])
    assert find(cache, text[:8], images=(image,)) == 4
    assert find(cache, text[:12], images=(image,)) == 12, "behind the image no token reads its embeddings"
