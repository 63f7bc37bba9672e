"""Where every byte of the page pool is: for metrics, for people, for a picture of the pool. Reads, never changes."""

from dataclasses import dataclass
from operator import mul

from engine.memory.kv_cache import KVCache
from engine.memory.spec import NUM_NULL_LARGE_PAGES


@dataclass(frozen=True, slots=True)
class PagesByState:
    """Small pages of one layer type. The last number counts room that all types share, once for each of them."""

    layer_type: str
    small_page_bytes: int
    num_used: int
    num_evictable: int
    num_empty: int  #: inside large pages that this type holds
    num_in_empty_large: int  #: could be cut out of the empty large pages

    @property
    def used_bytes(self) -> int:
        return self.num_used * self.small_page_bytes


@dataclass(frozen=True, slots=True)
class Ledger:
    """null + empty + (used + evictable + empty_in_large) = pool, in bytes and exactly."""

    pool_bytes: int
    null_bytes: int  #: the reserved large page
    empty_bytes: int  #: large pages that no type holds
    used_bytes: int
    evictable_bytes: int  #: cached prefixes that are given up when room is needed
    empty_in_large_bytes: int  #: empty small pages beside others: Jenga's internal fragmentation
    tail_waste_bytes: int  #: part of used_bytes: last pages that are not full yet
    padding_bytes: int  #: part of used_bytes: between what a small page holds and its size
    types: tuple[PagesByState, ...]


def pages_by_state(cache: KVCache) -> tuple[PagesByState, ...]:
    """Pages of each layer type now. O(types)."""
    return tuple(
        PagesByState(
            layer_type=pool.layer_type.name,
            small_page_bytes=pool.layer_type.small_page_bytes,
            num_used=pool.num_used,
            num_evictable=pool.num_evictable,
            num_empty=pool.num_empty,
            num_in_empty_large=cache.large_pool.num_empty * pool.ratio,
        )
        for pool in cache.pools
    )


def take_ledger(cache: KVCache) -> Ledger:
    """Account for every byte now. O(sequences)."""
    types = pages_by_state(cache)
    kinds = cache.plan.types
    slot_bytes = [kind.content_bytes // kind.page_tokens for kind in kinds]
    ledger = Ledger(
        pool_bytes=cache.plan.pool_bytes,
        null_bytes=NUM_NULL_LARGE_PAGES * cache.plan.large_page_bytes,
        empty_bytes=cache.large_pool.num_empty * cache.plan.large_page_bytes,
        used_bytes=sum(entry.used_bytes for entry in types),
        evictable_bytes=sum(entry.num_evictable * entry.small_page_bytes for entry in types),
        empty_in_large_bytes=sum(entry.num_empty * entry.small_page_bytes for entry in types),
        tail_waste_bytes=sum(map(mul, cache.unfilled_slots(), slot_bytes)),
        padding_bytes=sum(entry.num_used * kind.padding_bytes for entry, kind in zip(types, kinds, strict=True)),
        types=types,
    )
    accounted = ledger.used_bytes + ledger.evictable_bytes + ledger.empty_in_large_bytes
    assert ledger.null_bytes + ledger.empty_bytes + accounted == ledger.pool_bytes
    return ledger


@dataclass(frozen=True, slots=True)
class PoolCell:
    """A run of neighbouring large pages in a picture of the pool; fractions of its bytes, the rest is empty."""

    layer_type: str | None  #: the type that holds most of them; None where all are empty
    used: float
    evictable: float


def picture(cache: KVCache, max_cells: int = 256) -> tuple[PoolCell, ...]:
    """The pool in address order, without the null page, cut into at most max_cells equal runs of large pages."""
    num_pages = cache.plan.num_usable_large_pages
    run = -(-num_pages // max_cells)
    first_page = NUM_NULL_LARGE_PAGES
    return tuple(
        _cell(cache, range(start, min(start + run, first_page + num_pages)))
        for start in range(first_page, first_page + num_pages, run)
    )


def _cell(cache: KVCache, large_pages: range) -> PoolCell:
    used = evictable = 0.0
    holders: dict[str, int] = {}
    for large_page in large_pages:
        for pool in cache.pools:
            if cache.large_pool.owner(large_page) is pool:
                num_used, num_evictable = pool.counts_in(large_page)
                used += num_used / pool.ratio
                evictable += num_evictable / pool.ratio
                holders[pool.layer_type.name] = holders.get(pool.layer_type.name, 0) + 1
    most = max(holders, key=lambda name: holders[name]) if holders else None
    return PoolCell(most, used / len(large_pages), evictable / len(large_pages))
