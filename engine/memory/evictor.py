"""Which page is evicted next: the least recently used; among equally old pages the one furthest into its prompt.

Used for the small pages of one pool and for rows of large pages of all pools; knows only ids and keys. One time stamp
per step for all types makes eviction balanced; the token index as second key makes it aligned between types (Jenga
section 5.1).
"""

import heapq
from bisect import insort

EvictionKey = tuple[int, int]  #: (last access in steps, -prefix length in tokens); the smallest goes first

#: Removal leaves a dead entry behind. Dead entries are swept when there are this many more entries than twice the live
#: ones.
_SLACK = 64

_Entry = tuple[int, int]  # (prefix length, -page): in a bucket the largest goes first


class Evictor:
    """A set of pages ordered by eviction key. No operation scans: each costs O(log time stamps), and one sort per time
    stamp, of runs that are mostly in order already.

    Pages are in one bucket per time stamp, because many pages share few stamps. A single heap of all pages would spend
    most of its time waiting for memory (at 100,000 pages 8 of 12 microseconds of an eviction).
    """

    def __init__(self) -> None:
        self._live: dict[int, _Entry] = {}
        self._buckets: dict[int, list[_Entry]] = {}  # by time stamp; dead entries are skipped
        self._times: list[int] = []  # the time stamps of the buckets, as a heap
        self._sorted_time: int | None = None  # of the one sorted bucket, from which pages are taken
        self._num_entries = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, page: int) -> bool:
        return page in self._live

    def add(self, page: int, key: EvictionKey) -> None:
        """Make a page evictable. It must not be in the set."""
        assert page not in self._live
        last_access = key[0]
        self._live[page] = entry = (-key[1], -page)
        bucket = self._buckets.get(last_access)
        if bucket is None:
            self._buckets[last_access] = [entry]
            heapq.heappush(self._times, last_access)
        elif last_access == self._sorted_time:
            insort(bucket, entry)
        else:
            bucket.append(entry)
        self._num_entries += 1
        if self._num_entries > 2 * len(self._live) + _SLACK:
            self._sweep()

    def remove(self, page: int) -> None:
        """Make a page of the set not evictable: it is used again, or gone."""
        del self._live[page]

    def pop(self) -> int | None:
        """Remove and return the page to evict next; None where the set is empty."""
        live, times = self._live, self._times
        while times:
            oldest = times[0]
            bucket = self._buckets[oldest]
            if oldest != self._sorted_time:
                bucket.sort()
                self._sorted_time = oldest
            while bucket:
                entry = bucket.pop()
                self._num_entries -= 1
                page = -entry[1]
                if live.get(page) is entry:
                    del live[page]
                    return page
            del self._buckets[oldest]
            heapq.heappop(times)
            self._sorted_time = None
        return None

    def _sweep(self) -> None:
        live = self._live
        swept = {
            time: [entry for entry in bucket if live.get(-entry[1]) is entry] for time, bucket in self._buckets.items()
        }
        self._buckets = {time: bucket for time, bucket in swept.items() if bucket}
        self._times = list(self._buckets)
        heapq.heapify(self._times)
        self._num_entries = len(live)
