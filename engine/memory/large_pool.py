"""Large pages: which are empty, which layer type owns each of the others, and which may be taken away from their owner.

The upper of Jenga's two levels (section 4.1). Knows nothing of small pages but that an owner can be asked to give up
all those in one large page.
"""

from typing import Protocol

from engine.memory.evictor import Evictor
from engine.memory.spec import NUM_NULL_LARGE_PAGES


class LargePageOwner(Protocol):
    def surrender(self, large_page: int) -> None:
        """Forget everything cached in this large page, in which no small page is used."""


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
        self.evictable = Evictor()
        self.idle = Evictor()

    @property
    def num_empty(self) -> int:
        return len(self._empty)

    @property
    def num_evictable(self) -> int:
        return len(self.evictable)

    @property
    def num_available(self) -> int:
        """Large pages that anyone could have: empty, evictable or idle."""
        return len(self._empty) + len(self.evictable) + len(self.idle)

    def owner(self, large_page: int) -> LargePageOwner | None:
        return self._owners[large_page]

    def take_empty(self, owner: LargePageOwner) -> int | None:
        if not self._empty:
            return None
        large_page = self._empty.pop()
        self._owners[large_page] = owner
        return large_page

    def take_evictable(self, owner: LargePageOwner) -> int | None:
        """The least recently used evictable large page of any type, emptied and handed over."""
        return self._take(self.evictable, owner)

    def take_idle(self, owner: LargePageOwner) -> int | None:
        return self._take(self.idle, owner)

    def give_back(self, large_page: int) -> None:
        """All small pages in it are empty again."""
        self._owners[large_page] = None
        self._empty.append(large_page)

    def empty_pages(self) -> list[int]:
        return list(self._empty)

    def _take(self, evictor: Evictor, owner: LargePageOwner) -> int | None:
        large_page = evictor.pop()
        if large_page is None:
            return None
        previous = self._owners[large_page]
        assert previous is not None
        previous.surrender(large_page)
        self._owners[large_page] = owner
        return large_page
