"""Extends the tables of a sequence: new pages, cached images, and copies of pages that other sequences share.

Allocates and shares pages, and changes only the tables that it is given. The facade (kv_cache.py) decides which
sequence grows and when. Copies and table changes for the device are returned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.memory.deferred_frees import DeferredFrees
from engine.memory.lockstep import LockstepGroup
from engine.memory.prefix_match import PrefixMatcher
from engine.memory.room import Room
from engine.memory.sequence_tables import SequenceTables


@dataclass(frozen=True, slots=True)
class TableChange:
    """Entries from `start` on of a sequence's table for one layer type (its index in PoolPlan.types)."""

    layer_type: int
    start: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """The content of small page `src` must be copied to `dst` before this step writes anything."""

    layer_type: int
    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class Extension:
    """What the device must be told and copy before a sequence's new positions are written."""

    changes: tuple[TableChange, ...] = ()
    copies: tuple[Copy, ...] = ()


NOTHING_CHANGED = Extension()


@dataclass(slots=True)
class CacheCounters:
    """Totals since the cache was made; changed by Growth, read for metrics."""

    num_copies: int = 0  #: small pages copied on write
    num_encoded_images: int = 0  #: images whose pages were not cached when a sequence reached them


class Growth:
    """Copy-on-write and allocation for one sequence at a time."""

    def __init__(
        self,
        groups: Sequence[LockstepGroup],
        room: Room,
        matcher: PrefixMatcher,
        frees: DeferredFrees,
        counters: CacheCounters,
    ) -> None:
        self._groups = groups
        self._image_groups = [group for group in groups if group.has_images]
        self._room = room
        self._matcher = matcher
        self._frees = frees
        self._counters = counters

    def extend(self, tables: SequenceTables, start: int, end: int, step: int, *, is_caching: bool) -> Extension | None:
        """Make positions [start, end) writable. None, with nothing changed, where there is no room.

        step: time stamp of the pages released. is_caching: whether cached images may be used.
        """
        num_before = [len(pages) for pages in tables.pages]
        if is_caching:
            for group in self._image_groups:
                self._take_cached_images(tables, group, end)
        num_new = [
            max(0, group.policy.num_entries(end, tables.images) - len(pages))
            for group, pages in zip(self._groups, tables.pages, strict=True)
        ]
        needs = num_new
        if tables.may_share_tail:
            num_copies = self._num_copies(tables, num_before, start)
            needs = [count + copies for count, copies in zip(num_new, num_copies, strict=True)]
        may_take_large = self._room.prepare(tables.request, needs)
        if may_take_large is None:
            for group in self._image_groups:
                for page in tables.pages[group.index][num_before[group.index] :]:
                    group.pool.release(page, step)
                del tables.pages[group.index][num_before[group.index] :]
            return None
        if self._image_groups:
            self._counters.num_encoded_images += sum(1 for _ in tables.missing_images(self._image_groups[0], end))
        changes: list[TableChange] = []
        copies: list[Copy] = []
        for group, count, first_new in zip(self._groups, num_new, num_before, strict=True):
            pages = tables.pages[group.index]
            if tables.may_share_tail:
                for index in self._shared_pages(tables, group, start, first_new):
                    copies += self._copy_on_write(tables, group, index, step, may_take_large)
                    changes += _changes(tables, group, index, index + 1)
            if count:
                copies += self._grow(tables, group, count, may_take_large)
            if len(pages) > first_new:
                changes += _changes(tables, group, first_new, len(pages))
        if not may_take_large:
            self._room.give_back_unused(tables.request)
        tables.num_slots = min(
            [group.policy.capacity(len(tables.pages[group.index]), tables.images) for group in self._groups]
        )
        tables.may_share_tail = False
        return Extension(tuple(changes), tuple(copies))

    def _num_copies(self, tables: SequenceTables, num_before: Sequence[int], start: int) -> list[int]:
        """Number of pages of each group that writing from `start` on must copy."""
        return [
            sum(1 for _ in self._shared_pages(tables, group, start, num_pages))
            for group, num_pages in zip(self._groups, num_before, strict=True)
        ]

    def _shared_pages(self, tables: SequenceTables, group: LockstepGroup, start: int, num_pages: int) -> Iterator[int]:
        """Indices, below num_pages, of the pages that writing from `start` on changes and that other sequences share.
        The caller may replace each page before it takes the next index."""
        pages, ref_counts = tables.pages[group.index], group.pool.ref_counts
        for index in range(group.policy.first_written_page(start, tables.images), num_pages):
            if ref_counts[pages[index]] > 1:
                yield index

    def _grow(self, tables: SequenceTables, group: LockstepGroup, count: int, may_take_large: bool) -> list[Copy]:
        """Append `count` pages. A new recurrent state begins as a copy of the last checkpoint."""
        pages, copies = tables.pages[group.index], []
        for _ in range(count):
            page = self._room.take(tables.request, group, may_take_large)
            if pages and group.kind == "recurrent":
                copies += _copies(group, pages[-1], page)
            pages.append(page)
        return copies

    def _copy_on_write(
        self, tables: SequenceTables, group: LockstepGroup, index: int, step: int, may_take_large: bool
    ) -> list[Copy]:
        pages = tables.pages[group.index]
        src = pages[index]
        dst = self._room.take(tables.request, group, may_take_large)
        self._frees.release(group.pool, src, step)
        pages[index] = dst
        self._counters.num_copies += group.pool.width
        return _copies(group, src, dst)

    def _take_cached_images(self, tables: SequenceTables, group: LockstepGroup, end: int) -> None:
        pages = self._matcher.cached_images(tables, group, end)
        for page in pages:
            group.pool.share(page)
        tables.pages[group.index] += pages


def _copies(group: LockstepGroup, src: int, dst: int) -> list[Copy]:
    pool = group.pool
    return [Copy(*copy) for copy in zip(group.types, pool.beside(src), pool.beside(dst), strict=True)]


def _changes(tables: SequenceTables, group: LockstepGroup, start: int, end: int) -> list[TableChange]:
    columns = group.pool.tables(tables.pages[group.index][start:end])
    return [TableChange(which, start, column) for which, column in zip(group.types, columns, strict=True)]
