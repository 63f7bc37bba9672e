"""Checks that every page of the cache is accounted for, from scratch. For tests and for an idle engine."""

from collections import Counter
from collections.abc import Iterable, Sequence

from engine.memory.deferred_frees import DeferredFrees
from engine.memory.large_pool import LargePool
from engine.memory.lockstep import LockstepGroup
from engine.memory.sequence_tables import SequenceTables
from engine.memory.spec import NULL_PAGE, PoolPlan


def check(
    plan: PoolPlan,
    large_pool: LargePool,
    groups: Sequence[LockstepGroup],
    sequences: Iterable[SequenceTables],
    frees: DeferredFrees,
) -> None:
    """Raise AssertionError unless every page is accounted for. O(pool).

    plan, groups, sequences, frees: of one model. The large pages are those of all models that share them.
    """
    for group in groups:
        group.pool.check_integrity()
        _check_references(group, sequences, frees)
    own_bytes = sum(
        (group.pool.num_used + group.pool.num_evictable + group.pool.num_empty) * group.pool.page_bytes
        for group in groups
    )
    own_rows = sum(group.pool.width for group in groups for _ in group.pool.rows())
    _check(own_bytes == own_rows * plan.large_page_bytes, "used + evictable + empty bytes")
    empty = large_pool.empty_pages()
    owned = [page for page in range(large_pool.num_large_pages) if large_pool.owner(page) is not None]
    _check(len(set(empty)) == len(empty), "a large page is empty twice")
    _check(not set(empty) & set(owned), "an empty large page has an owner")
    _check(0 not in empty and 0 not in owned, "the null page was handed out")
    _check(len(empty) + len(owned) == plan.num_usable_large_pages, "large pages are missing")
    rows = {large[0]: owner.width for owner in large_pool.owners() for large, _, _ in owner.rows()}
    _check(sum(rows.values()) == len(owned), "a large page has an owner that does not hold it")
    for reclaimable in (large_pool.evictable, large_pool.idle):
        num_pages = sum(width for row, width in rows.items() if row in reclaimable)
        _check(num_pages == reclaimable.num_pages, "large pages that can be taken away")


def _check_references(group: LockstepGroup, sequences: Iterable[SequenceTables], frees: DeferredFrees) -> None:
    counts = Counter(frees.pages_of(group.pool))
    for tables in sequences:
        pages, first_live = tables.pages[group.index], tables.first_live[group.index]
        if tables.is_suspended:
            _check(not pages, "a suspended sequence holds pages")
            continue
        held = [page for page in pages if page != NULL_PAGE]
        counts.update(held)
        _check(len(set(held)) == len(held) or bool(tables.images), "a page occurs twice in one table")
        _check(tables.num_slots <= group.policy.capacity(len(pages), tables.images), "positions without a page")
        _check(NULL_PAGE not in pages[first_live:], "a live page is missing")
        _check(len(held) <= len(pages) - first_live, "a dropped page is still held")
    _check(counts == group.pool.ref_counts, f"reference counts of {group.pool.layer_type.name}")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
