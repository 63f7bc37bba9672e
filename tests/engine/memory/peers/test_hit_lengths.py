"""What Jenga's test of hit lengths pins, and how several kinds of layers agree on one; in our terms.

The artifact's windows ask for one page more than a query reads; its recurrent layers claim a state that may be missing.
Both are deliberately different here.
"""

import itertools
import random
from typing import Protocol

import pytest

from engine.memory.kv_cache import KVCache
from engine.memory.lockstep import LockstepGroup, make_groups
from engine.memory.policies import FullPolicy, WindowPolicy
from engine.memory.spec import LayerSpec
from tests.engine.memory.peers.cache_user import cache_of, find, page_names

T, F = True, False


def hit(policy: FullPolicy | WindowPolicy, cached: list[bool]) -> int:
    return policy.longest_hit(lambda index: cached[index], len(cached) * policy.page_tokens, ())


@pytest.mark.parametrize(("cached", "pages"), [([F] * 16, 0), ([T] * 16 + [F], 16), ([T] * 16 + [F] * 16, 16)])
def test_full_attention(cached: list[bool], pages: int) -> None:
    assert hit(FullPolicy(16), cached) == 16 * pages


@pytest.mark.parametrize(
    ("cached", "pages", "artifact"),
    [
        ([F] * 16, 0, 0),
        ([T] + [F] * 10, 1, 1),
        ([T] * 3 + [F] * 16, 3, 3),
        ([F] + [T] * 2 + [F] * 16, 3, 0),
        ([F] + [T] * 3 + [F] * 16, 4, 4),
        ([F] + [T] * 4 + [F] * 16, 5, 5),
    ],
)
def test_a_window_of_32_tokens_in_pages_of_16(cached: list[bool], pages: int, artifact: int) -> None:
    assert hit(WindowPolicy(16, 32), cached) == 16 * pages
    assert hit(WindowPolicy(16, 48), cached) == 16 * artifact, "a window of one page more is what the artifact asks for"


KINDS = (
    LayerSpec("full", 4, "bf16"),
    LayerSpec("window", 4, "bf16", span=7),
    LayerSpec("window", 4, "bf16", span=13),
    LayerSpec("chunked", 4, "bf16", span=16),
    LayerSpec("recurrent", 16, "bf16", span=8),
)
TEXT = list(range(48))


class Chooser(Protocol):
    """A random.Random, or what stands for one."""

    def random(self) -> float: ...


def is_valid(kind: LayerSpec, cached: list[bool], length: int, page_tokens: int) -> bool:
    """What each kind of layer needs of a prefix, by definition."""
    if length % page_tokens:
        return False
    match kind.kind:
        case "full":
            first = 0
        case "window":
            first = max(0, length - kind.span + 1) // page_tokens
        case "chunked":
            first = length // kind.span * kind.span // page_tokens
        case "recurrent":
            first = max(0, length // page_tokens - 1)
    return all(cached[first : length // page_tokens])


@pytest.mark.parametrize("kinds", [kinds for size in (1, 2, 3) for kinds in itertools.combinations(KINDS, size)])
def test_the_hit_is_the_longest_length_that_is_valid_for_every_type(kinds: tuple[LayerSpec, ...]) -> None:
    choose = random.Random(str(kinds))
    for _ in range(30):
        cache = cache_of(*kinds, num_pages=200)
        cached = {}
        for group in cache.groups:
            cached[group.index] = publish_some(cache, group, choose)
        lengths = [
            length
            for length in range(len(TEXT) + 1)
            if all(
                is_valid(cache.plan.types[group.types[0]].spec, cached[group.index], length, group.page_tokens)
                for group in cache.groups
            )
        ]
        assert find(cache, TEXT) == max(lengths)


def publish_some(cache: KVCache, group: LockstepGroup, choose: Chooser) -> list[bool]:
    """Cache some pages of the text for one type; which of them."""
    names = page_names(cache, group, TEXT)
    is_cached = [choose.random() < 0.7 for _ in names]
    for index, name in enumerate(names):
        if is_cached[index]:
            page = group.pool.allocate(0)
            assert page is not None
            group.pool.publish(page, name, (index + 1) * group.page_tokens)
            group.pool.release(page, index)
    return is_cached


def test_a_length_that_one_type_rejects_is_tried_again_with_the_others() -> None:
    """Full attention has 10 pages, the window ends at 9 or 4, the chunk at 8 or 4 or 0: only 4 suits all."""
    kinds = (KINDS[0], LayerSpec("window", 4, "bf16", span=5), LayerSpec("chunked", 4, "bf16", span=32))
    cache = cache_of(*kinds, num_pages=60)
    assert [group.kind for group in make_groups(cache.plan, cache.large_pool, None)] == ["full", "window", "chunked"]
    patterns = ([T] * 10 + [F] * 2, [F, F, F, T, F, F, F, F, T, F, F, F], [T] * 4 + [F] * 8)
    for group, is_cached in zip(cache.groups, patterns, strict=True):
        publish_some(cache, group, Pattern(is_cached))
    assert find(cache, TEXT) == 16


class Pattern:
    """Stands for a random generator whose choices are known."""

    def __init__(self, is_cached: list[bool]) -> None:
        self._choices = iter(is_cached)

    def random(self) -> float:
        return 0.0 if next(self._choices) else 1.0
