"""Large pages: which are empty, which pool owns each of the others, and which may be taken away from their owner.

The upper of Jenga's two levels (section 4.1). An owner takes large pages in rows of equally many, one for each of the
layer types that it serves in lockstep; a row is named by its first page and changes hands as a whole. Knows nothing of
small pages but that an owner can be asked to give up all those in one row.
"""

from collections.abc import Sequence
from typing import Protocol

from engine.memory.evictor import EvictionKey, Evictor
from engine.memory.spec import NUM_NULL_LARGE_PAGES


class LargePageOwner(Protocol):
    width: int  #: large pages in a row

    def surrender(self, row: int) -> Sequence[int]:
        """Forget everything cached in this row, in which no small page is used; return its large pages."""


class Reclaimable:
    """Rows that may be taken away, oldest first, and how many large pages they are."""

    def __init__(self) -> None:
        self.num_pages = 0
        self._rows = Evictor()

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def add(self, row: int, width: int, key: EvictionKey) -> None:
        self._rows.add(row, key)
        self.num_pages += width

    def remove(self, row: int, width: int) -> None:
        self._rows.remove(row)
        self.num_pages -= width

    def pop(self) -> int | None:
        """The row that goes next; whoever takes it says with `num_pages` how large it was."""
        return self._rows.pop()


class LargePool:
    """Owner of the large pages [1, num_large_pages); page 0 is the null page and never handed out.

    Beside empty ones two kinds can be had: `evictable` (all small pages hold cached data) and `idle` (no small page
    is used, some hold cached data, some are empty). The paper knows only the first; without the second, a type whose
    pages are left half cached could starve the others for ever.
    """

    def __init__(self, num_large_pages: int) -> None:
        assert num_large_pages > NUM_NULL_LARGE_PAGES
        self.num_large_pages = num_large_pages
        self._empty = list(range(num_large_pages - 1, NUM_NULL_LARGE_PAGES - 1, -1))  # a stack, lowest id on top
        self._owners: list[LargePageOwner | None] = [None] * num_large_pages
        self.evictable = Reclaimable()
        self.idle = Reclaimable()

    @property
    def num_empty(self) -> int:
        return len(self._empty)

    @property
    def num_evictable(self) -> int:
        return self.evictable.num_pages

    @property
    def num_available(self) -> int:
        """Large pages that anyone could have: empty, evictable or idle."""
        return len(self._empty) + self.evictable.num_pages + self.idle.num_pages

    def owner(self, large_page: int) -> LargePageOwner | None:
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
        """A row made up of empty large pages and of the least recently used evictable rows of any owner."""
        if len(self._empty) + self.evictable.num_pages < owner.width:
            return None
        while len(self._empty) < owner.width:
            self._reclaim(self.evictable)
        return self.take_empty(owner)

    def take_available(self, owner: LargePageOwner) -> Sequence[int] | None:
        """As take_evictable, and idle rows when those do not suffice."""
        if self.num_available < owner.width:
            return None
        while len(self._empty) < owner.width:
            self._reclaim(self.evictable if self.evictable.num_pages else self.idle)
        return self.take_empty(owner)

    def reclaim_all(self) -> None:
        """Take back all that nobody uses, with what is cached in it."""
        for rows in (self.evictable, self.idle):
            while rows.num_pages:
                self._reclaim(rows)

    def give_back(self, row: Sequence[int]) -> None:
        """All small pages in it are empty again."""
        for large_page in row:
            self._owners[large_page] = None
        self._empty += row

    def empty_pages(self) -> list[int]:
        return list(self._empty)

    def _reclaim(self, rows: Reclaimable) -> None:
        first = rows.pop()
        assert first is not None, "it was counted"
        owner = self._owners[first]
        assert owner is not None
        rows.num_pages -= owner.width
        self.give_back(owner.surrender(first))
