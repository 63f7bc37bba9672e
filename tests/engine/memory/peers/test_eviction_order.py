"""The order in which a pool evicts: what Jenga's test on Gemma-2 pins, and where vLLM differs."""

import itertools

from engine.memory.hashing import PageName
from engine.memory.kv_cache import KVCache
from engine.memory.spec import LayerKind, LayerSpec
from tests.engine.memory.peers.cache_user import cache_of, end, fill, find, go_on, page_names, start

FULL, WINDOW = LayerSpec("full", 4, "bf16"), LayerSpec("window", 4, "bf16", span=9)
STEM = list(range(100, 116))
FIRST, SECOND = STEM + [1] * 8, STEM + [2] * 8


def evicted(cache: KVCache) -> list[tuple[str, str, int]]:
    """Allocate pages until nothing is cached; returns the evicted pages as (type, text, page of the text)."""
    places: dict[tuple[LayerKind, PageName], tuple[str, str, int]] = {}
    for group, (text, tokens) in itertools.product(cache.groups, {"first": FIRST, "second": SECOND}.items()):
        for index, name in enumerate(page_names(cache, group, tokens)):
            places[group.kind, name] = (group.kind, "stem" if index < 4 else text, index)
    pools = {group.kind: group.pool for group in cache.groups}
    fill(cache)
    order: list[tuple[str, str, int]] = []
    while cache.large_pool.num_evictable:
        cached = [key for key in places if pools[key[0]].lookup(key[1]) is not None]
        pools["full"].allocate(60)
        order += [places[key] for key in cached if pools[key[0]].lookup(key[1]) is None]
    return order


def test_what_two_conversations_with_a_common_beginning_leave_goes_in_this_order() -> None:
    """First what fell out of the first one's window; then the first one's own text, then the second one's, both types
    one after the other at each place (aligned: what one type has lost is of no use to the other); the beginning, which
    both have used, last. vLLM frees one group after another into one queue: a group loses all of a text before the next
    one loses anything."""
    cache = cache_of(FULL, WINDOW, num_pages=40)
    for step, text in enumerate((FIRST, SECOND)):
        cache.begin_step(step)
        start(cache, step, [*text, 3])
        end(cache, step)
    own = [(kind, text, index) for text in ("first", "second") for index in (5, 4) for kind in ("full", "window")]
    assert evicted(cache) == [
        ("window", "stem", 1),
        ("window", "stem", 0),
        *own,
        ("full", "stem", 3),
        ("window", "stem", 3),
        ("full", "stem", 2),
        ("window", "stem", 2),
        ("full", "stem", 1),
        ("full", "stem", 0),
    ]


def test_a_session_that_waits_keeps_its_window_while_others_write_long_answers() -> None:
    """vLLM issue 48435: what falls out of the windows of running requests enters its queue as the youngest, and the
    ends of waiting conversations go first; hit rates of many sessions fall to nothing."""
    cache = cache_of(FULL, WINDOW, num_pages=40)
    waiting = list(range(200, 224))
    start(cache, 0, waiting)
    end(cache, 0)
    answer = [1] * 80  # 20 pages of each type; a window holds 3 or 4 of them at a time
    cache.open(1, 1)
    cache.admit(1, answer, 0, [80])
    for step in range(1, 21):
        cache.begin_step(step)
        go_on(cache, 1, answer[: 4 * step], 4 * step - 4)
    assert find(cache, waiting) == 24
    assert find(cache, answer[:24]) < 24, "room came from what had fallen out of the running window"
