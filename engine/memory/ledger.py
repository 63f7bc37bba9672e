"""Accounts for every byte of the page pool: for metrics, logs and the picture of the pool. Changes nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.memory.kv_cache import KVCache
from engine.memory.lockstep import LockstepGroup
from engine.memory.sequence_tables import SequenceTables
from engine.memory.spec import NULL_PAGE, NUM_NULL_LARGE_PAGES


@dataclass(frozen=True, slots=True)
class PagesByState:
    """Small pages of one layer type. Each type counts the empty large pages, which all types share."""

    layer_type: str
    small_page_bytes: int
    num_used: int
    num_evictable: int
    num_empty: int  #: inside large pages that this type holds
    num_in_empty_large: int  #: could be cut out of the empty large pages
    num_saved: int = 0  #: more pages that would be used if no two sequences shared one

    @property
    def used_bytes(self) -> int:
        """Bytes of the used pages, padding included."""
        return self.num_used * self.small_page_bytes


@dataclass(frozen=True, slots=True)
class Ledger:
    """null + empty + (used + evictable + empty_in_large) + other_models = pool, in bytes and exactly."""

    pool_bytes: int
    null_bytes: int  #: the reserved large page
    empty_bytes: int  #: large pages that no type holds
    used_bytes: int
    evictable_bytes: int  #: cached prefixes that are evicted when room is needed
    empty_in_large_bytes: int  #: empty small pages beside others: Jenga's internal fragmentation
    tail_waste_bytes: int  #: part of used_bytes: unwritten ends of last pages
    padding_bytes: int  #: part of used_bytes: unused ends of padded small pages
    types: tuple[PagesByState, ...]
    other_models_bytes: int = 0  #: large pages that other models hold, where several share the pool


def pages_by_state(cache: KVCache) -> tuple[PagesByState, ...]:
    """Pages of each layer type now. O(types)."""
    entries: dict[int, PagesByState] = {}
    for group in cache.groups:
        pool = group.pool
        for which in group.types:
            layer_type = cache.plan.types[which]
            entries[which] = PagesByState(
                layer_type=layer_type.name,
                small_page_bytes=layer_type.small_page_bytes,
                num_used=pool.num_used,
                num_evictable=pool.num_evictable,
                num_empty=pool.num_empty,
                num_in_empty_large=cache.large_pool.num_empty * pool.ratio,
                num_saved=pool.num_references - pool.num_used,
            )
    return tuple(entries[which] for which in range(len(entries)))


def other_models_bytes(cache: KVCache) -> int:
    """Bytes of the large pages that other models hold in a shared pool, cached ones included."""
    num_owned = cache.plan.num_usable_large_pages - cache.large_pool.num_empty
    num_own = sum(pool.num_rows * pool.width for pool in cache.pools)
    return (num_owned - num_own) * cache.plan.large_page_bytes


def take_ledger(cache: KVCache) -> Ledger:
    """Account for every byte now. O(sequences)."""
    types = pages_by_state(cache)
    kinds = cache.plan.types
    ledger = Ledger(
        pool_bytes=cache.plan.pool_bytes,
        null_bytes=NUM_NULL_LARGE_PAGES * cache.plan.large_page_bytes,
        empty_bytes=cache.large_pool.num_empty * cache.plan.large_page_bytes,
        used_bytes=sum(entry.used_bytes for entry in types),
        evictable_bytes=sum(entry.num_evictable * entry.small_page_bytes for entry in types),
        empty_in_large_bytes=sum(entry.num_empty * entry.small_page_bytes for entry in types),
        tail_waste_bytes=sum(
            _unfilled_slots(group, cache.sequences()) * (kinds[which].content_bytes // kinds[which].page_tokens)
            for group in cache.groups
            for which in group.types
        ),
        padding_bytes=sum(entry.num_used * kind.padding_bytes for entry, kind in zip(types, kinds, strict=True)),
        types=types,
        other_models_bytes=other_models_bytes(cache),
    )
    accounted = ledger.used_bytes + ledger.evictable_bytes + ledger.empty_in_large_bytes + ledger.other_models_bytes
    assert ledger.null_bytes + ledger.empty_bytes + accounted == ledger.pool_bytes
    return ledger


def _unfilled_slots(group: LockstepGroup, sequences: Iterable[SequenceTables]) -> int:
    """Token positions of used pages without data; a shared page counts once."""
    filled: dict[int, int] = {}  # page -> positions with data
    size = group.page_tokens
    if group.kind == "recurrent":
        return 0
    for tables in sequences:
        pages = tables.pages[group.index]
        if group.has_images:
            filled.update(_filled_by_images(tables, pages, size))
            continue
        num_filled = min(tables.num_filled, group.span) if group.kind == "budgeted" else tables.num_filled
        for index in range(num_filled // size, len(pages)):
            in_page = min(size, max(0, num_filled - index * size))
            filled[pages[index]] = max(filled.get(pages[index], 0), in_page)
    filled.pop(NULL_PAGE, None)
    return sum(size - in_page for in_page in filled.values())


def _filled_by_images(tables: SequenceTables, pages: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """The last page of each image, with its positions that hold data."""
    end = 0
    for image in tables.images:
        end += -(-image.num_tokens // size)
        if end <= len(pages):
            yield pages[end - 1], (image.num_tokens - 1) % size + 1


@dataclass(frozen=True, slots=True)
class PoolCell:
    """Neighbouring large pages in a picture of the pool. Fractions are of their bytes; the rest is empty."""

    layer_type: str | None  #: the type that holds most of them; None where all are empty
    used: float
    evictable: float


def picture(cache: KVCache, max_cells: int = 256) -> tuple[PoolCell, ...]:
    """The pool in address order, without the null page, in at most max_cells equal runs of large pages. Pages of other
    models have the name of their model for a layer type."""
    held: dict[int, PoolCell] = {}
    own = {id(pool) for pool in cache.pools}
    for owner in cache.large_pool.owners():
        if id(owner) not in own:
            model, ratio = owner.layer_type.spec.model, cache.plan.large_page_bytes // owner.layer_type.small_page_bytes
            for large_pages, num_used, num_evictable in owner.rows():
                held |= dict.fromkeys(large_pages, PoolCell(model, num_used / ratio, num_evictable / ratio))
    for group in cache.groups:
        for large_pages, num_used, num_evictable in group.pool.rows():
            used, evictable = num_used / group.pool.ratio, num_evictable / group.pool.ratio
            for which, large_page in zip(group.types, large_pages, strict=True):
                held[large_page] = PoolCell(cache.plan.types[which].name, used, evictable)
    num_pages = cache.plan.num_usable_large_pages
    run = -(-num_pages // max_cells)
    first_page = NUM_NULL_LARGE_PAGES
    return tuple(
        _merge(held, range(start, min(start + run, first_page + num_pages)))
        for start in range(first_page, first_page + num_pages, run)
    )


def _merge(held: Mapping[int, PoolCell], large_pages: range) -> PoolCell:
    cells = [held[large_page] for large_page in large_pages if large_page in held]
    holders = Counter(cell.layer_type for cell in cells)
    return PoolCell(
        layer_type=holders.most_common(1)[0][0] if holders else None,
        used=sum(cell.used for cell in cells) / len(large_pages),
        evictable=sum(cell.evictable for cell in cells) / len(large_pages),
    )
