"""Large pages: which are empty, which pool owns each of the others, and which may be reclaimed from their owner.

Several models may share one large pool, each with a page cache of its own over it: then the owners are small pools of
all of them, and time stamps and releases count for all.

The upper of Jenga's two levels (section 4.1). An owner takes large pages in rows of `width` pages, one for each of the
layer types that it serves in lockstep. A row is named by its first page and changes its owner as a whole. Small pages
are the owner's: this pool only asks an owner to surrender all small pages of a row.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from engine.memory.evictor import EvictionKey, Evictor
from engine.memory.spec import NUM_NULL_LARGE_PAGES, LayerType


class LargePageOwner(Protocol):
    """The pool of small pages that holds a row."""

    width: int  #: large pages in a row
    layer_type: LayerType  #: the first of those that it serves

    def rows(self) -> Iterator[tuple[Sequence[int], int, int]]:
        """For each row that it holds: its large pages, and the numbers of used and of evictable small pages in each."""

    def surrender(self, row: int) -> Sequence[int]:
        """Drop the cached content of this row, in which no small page is used, and return its large pages."""


class Reclaimable:
    """Rows that may be reclaimed, oldest first, and the number of their large pages."""

    def __init__(self) -> None:
        self.num_pages = 0
        self._rows = Evictor()

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def add(self, row: int, width: int, key: EvictionKey) -> None:
        """The row, of `width` large pages, may be reclaimed from now on."""
        self._rows.add(row, key)
        self.num_pages += width

    def remove(self, row: int, width: int) -> None:
        """The row may not be reclaimed any more."""
        self._rows.remove(row)
        self.num_pages -= width

    def pop(self) -> int | None:
        """Remove and return the row to reclaim next. The caller subtracts its width from `num_pages`."""
        return self._rows.pop()


class LargePool:
    """Owner of the large pages [1, num_large_pages); page 0 is the null page and never handed out.

    Two kinds of large pages are available beside empty ones: `evictable` (all small pages hold cached data) and `idle`
    (no small page is used, some hold cached data, some are empty). The paper has only the first. Without the second, a
    type whose large pages are half cached and half empty could starve the other types for ever.
    """

    def __init__(self, num_large_pages: int) -> None:
        assert num_large_pages > NUM_NULL_LARGE_PAGES
        self.num_large_pages = num_large_pages
        self._empty = list(range(num_large_pages - 1, NUM_NULL_LARGE_PAGES - 1, -1))  # a stack, lowest id on top
        self._owners: list[LargePageOwner | None] = [None] * num_large_pages
        self.evictable = Reclaimable()
        self.idle = Reclaimable()
        self.now = 0  #: the newest time stamp, in steps of all models
        self.num_releases = 0  #: grows whenever small pages have been freed

    def next_stamp(self) -> int:
        """The time stamp of a new step of any model: one order of eviction for all."""
        self.now += 1
        return self.now

    @property
    def num_empty(self) -> int:
        """Large pages without an owner."""
        return len(self._empty)

    @property
    def num_evictable(self) -> int:
        """Large pages in rows full of cached data that no sequence uses."""
        return self.evictable.num_pages

    @property
    def num_available(self) -> int:
        """Large pages that any owner could take: empty, evictable or idle."""
        return len(self._empty) + self.evictable.num_pages + self.idle.num_pages

    @property
    def num_used(self) -> int:
        """Large pages with a used small page."""
        return self.num_large_pages - NUM_NULL_LARGE_PAGES - self.num_available

    def owners(self) -> Iterable[LargePageOwner]:
        """All owners of large pages. O(large pages)."""
        return {id(owner): owner for owner in self._owners if owner is not None}.values()

    def owner(self, large_page: int) -> LargePageOwner | None:
        """None for an empty page and for the null page."""
        return self._owners[large_page]

    def take_empty(self, owner: LargePageOwner) -> Sequence[int] | None:
        """A row of empty large pages; None where there are not enough."""
        width = owner.width
        if len(self._empty) < width:
            return None
        row = self._empty[-width:]
        del self._empty[-width:]
        for large_page in row:
            self._owners[large_page] = owner
        return row

    def take_evictable(self, owner: LargePageOwner) -> Sequence[int] | None:
        """A row of empty large pages, some reclaimed from the least recently used evictable rows; None where those are
        not enough."""
        if len(self._empty) + self.evictable.num_pages < owner.width:
            return None
        while len(self._empty) < owner.width:
            self._reclaim(self.evictable)
        return self.take_empty(owner)

    def take_available(self, owner: LargePageOwner) -> Sequence[int] | None:
        """Like take_evictable, but also reclaims idle rows when those are not enough."""
        if self.num_available < owner.width:
            return None
        while len(self._empty) < owner.width:
            self._reclaim(self.evictable if self.evictable.num_pages else self.idle)
        return self.take_empty(owner)

    def reclaim_all(self) -> None:
        """Empty all rows in which no small page is used; their cached content is lost."""
        for rows in (self.evictable, self.idle):
            while rows.num_pages:
                self._reclaim(rows)

    def reclaim_from(self, owner: LargePageOwner) -> None:
        """Empty all rows of this owner, in which no small page is used; their cached content is lost."""
        for large_pages, num_used, _ in list(owner.rows()):
            assert num_used == 0
            row = large_pages[0]
            (self.evictable if row in self.evictable else self.idle).remove(row, owner.width)
            self.give_back(owner.surrender(row))

    def reclaim_idle(self, owner: LargePageOwner) -> None:
        """Empty the idle rows of this owner; their cached content is lost."""
        for large_pages, num_used, _ in list(owner.rows()):
            if not num_used and large_pages[0] in self.idle:
                self.idle.remove(large_pages[0], owner.width)
                self.give_back(owner.surrender(large_pages[0]))

    def take_away(self, owner: LargePageOwner) -> None:
        """Empty all large pages of an owner that is not used again, whatever it has in them."""
        for large_page, holder in enumerate(self._owners):
            if holder is not owner:
                continue
            for rows in (self.evictable, self.idle):
                if large_page in rows:
                    rows.remove(large_page, owner.width)
            self.give_back((large_page,))

    def give_back(self, row: Sequence[int]) -> None:
        """An owner returns a row whose small pages are all empty."""
        for large_page in row:
            self._owners[large_page] = None
        self._empty += row

    def empty_pages(self) -> list[int]:
        """Ids of the large pages without an owner."""
        return list(self._empty)

    def _reclaim(self, rows: Reclaimable) -> None:
        first = rows.pop()
        assert first is not None, "it was counted"
        owner = self._owners[first]
        assert owner is not None
        rows.num_pages -= owner.width
        self.give_back(owner.surrender(first))
