"""Serves whole sequences on a page cache and reads its state, for the behaviours that other engines test too."""

from collections.abc import Sequence

from engine.memory.hashing import PageName
from engine.memory.images import Images
from engine.memory.kv_cache import KVCache
from engine.memory.lockstep import LockstepGroup
from engine.memory.planning.designs import lcm_design
from engine.memory.spec import LayerSpec, PoolPlan

_FILLER = -1  # a request that allocates pages and frees none


def cache_of(*layers: LayerSpec, num_pages: int, page_tokens: int = 4, max_step_tokens: int = 64) -> KVCache:
    """num_pages: large pages beside the null page."""
    design = lcm_design(layers, page_tokens=page_tokens)
    plan = PoolPlan(design.types, design.large_page_bytes, num_pages + 1)
    return KVCache(plan, max_step_tokens=max_step_tokens)


def start(cache: KVCache, sequence: int, tokens: Sequence[int], salt: bytes = b"", images: Images = ()) -> int | None:
    """Open a sequence and compute all its tokens. Returns the number of cached tokens; None where there is no room."""
    cache.open(sequence, sequence, salt, images)
    hit = cache.admit(sequence, tokens, len(tokens) - 1, [len(tokens)])
    if hit is not None:
        go_on(cache, sequence, tokens, hit)
    return hit


def go_on(cache: KVCache, sequence: int, tokens: Sequence[int], position: int) -> None:
    """Compute the tokens from `position` on, in steps that end at checkpoints."""
    while position < len(tokens):
        end = cache.chunk_end(position, len(tokens))
        assert cache.extend(sequence, position, end) is not None
        cache.advance(sequence, tokens, end)
        position = end


def end(cache: KVCache, sequence: int) -> None:
    cache.close(sequence)
    cache.end_request(sequence)


def find(cache: KVCache, tokens: Sequence[int], salt: bytes = b"", images: Images = ()) -> int:
    """Cached tokens of a prompt that has one more token."""
    cache.open(_FILLER, _FILLER, salt, images)
    length = cache.match(_FILLER, [*tokens, -1], len(tokens))
    cache.close(_FILLER)
    return length


def page_names(cache: KVCache, group: LockstepGroup, tokens: Sequence[int], images: Images = ()) -> list[PageName]:
    """Names of the full pages of a prompt, in one group of types."""
    cache.open(_FILLER, _FILLER, images=images)
    *_, tables = cache.sequences()
    names = tables.page_names(group, tokens, 0, group.policy.num_complete(len(tokens), images))
    cache.close(_FILLER)
    return names


def evict(cache: KVCache, group: LockstepGroup, name: PageName) -> None:
    """Evict exactly one page of a pool without empty pages, whose small pages are large pages."""
    page = group.pool.lookup(name)
    assert page is not None
    assert cache.large_pool.num_empty == 0
    group.pool.restamp(page, name, -(1 << 50))
    taken = group.pool.allocate(_FILLER)
    assert taken == page


def fill(cache: KVCache) -> None:
    """Use up all empty pages, so that from now on every new page is an evicted one."""
    while cache.large_pool.num_empty:
        cache.pools[0].allocate(_FILLER)
