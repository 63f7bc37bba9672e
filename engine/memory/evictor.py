"""Which page goes next: the least recently used, and of equally old ones the one that is furthest into its prompt.

Used for small pages of one type and for large pages of all types; knows only ids and keys. Jenga section 5.1: one time
stamp per step for all types makes eviction balanced, the token index as second key makes it aligned between types.
"""

import heapq

EvictionKey = tuple[int, int]  #: (last access in steps, -prefix length in tokens); the smallest goes first

#: Removal leaves its heap entry behind; the heap is rebuilt when it holds this many entries more than twice the live
#: ones.
_SLACK = 64


class Evictor:
    """A set of pages ordered by eviction key. add, remove and pop cost O(log n) amortised; nothing scans."""

    def __init__(self) -> None:
        self._live: dict[int, tuple[int, int, int]] = {}
        self._heap: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, page: int) -> bool:
        return page in self._live

    def add(self, page: int, key: EvictionKey) -> None:
        assert page not in self._live
        entry = (key[0], key[1], page)
        self._live[page] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = list(self._live.values())
            heapq.heapify(self._heap)

    def remove(self, page: int) -> None:
        del self._live[page]

    def pop(self) -> int | None:
        """Remove and return the page that goes next."""
        live, heap = self._live, self._heap
        while heap:
            entry = heapq.heappop(heap)
            if live.get(entry[2]) is entry:
                del live[entry[2]]
                return entry[2]
        return None
