"""The requests that wait for pages and slots: in which order they may start, and for whom looking again is no use yet.

First come, first served, but a request that does not fit now is passed by those that do, for a while. Used by the
scheduler, which decides what fits; looks at the page cache only to learn whether anything was freed.
"""

from bisect import insort
from collections.abc import Iterable

from engine.memory.kv_cache import KVCache
from engine.request import Request

#: How often younger requests may pass one that does not fit yet, before everyone waits for it: no starvation.
MAX_OVERTAKEN = 64
#: How many waiting requests are looked at in one step: bounds the cost of a step when the pool is full.
MAX_LOOKED_AT = 64


class WaitingQueue:
    """Owner of the queue. What it remembers of refusals it remembers of running requests, too."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._requests: list[Request] = []  # by arrival
        self._refused_at: dict[Request, int] = {}  # request -> the cache's release count when it found no room

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        request.num_overtaken = 0
        insort(self._requests, request, key=by_arrival)

    def remove(self, request: Request) -> None:
        self._requests.remove(request)

    def start(self, request: Request, passed: Iterable[Request]) -> None:
        """It fits and waits no longer; these older ones do not."""
        self.remove(request)
        self.forget(request)
        for other in passed:
            other.num_overtaken += 1

    def candidates(self) -> list[Request]:
        return self._requests[:MAX_LOOKED_AT]

    def may_be_passed(self, request: Request) -> bool:
        return request.num_overtaken < MAX_OVERTAKEN

    def refuse(self, request: Request) -> None:
        """It found no room."""
        self._refused_at[request] = self._cache.release_count

    def is_refused(self, request: Request) -> bool:
        """Nothing has been freed since it found no room."""
        return self._refused_at.get(request) == self._cache.release_count

    def forget(self, request: Request) -> None:
        self._refused_at.pop(request, None)


def by_arrival(request: Request) -> int:
    return request.arrival
