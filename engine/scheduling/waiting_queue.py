"""The requests that wait for pages and slots, in the order in which they may start.

First come, first served, except that requests that fit may pass an older one that does not, a bounded number of times.
The scheduler decides what fits. The queue asks the page cache only whether pages have been freed since a request found
no room.
"""

from bisect import insort
from collections.abc import Iterable

from engine.memory.kv_cache import KVCache
from engine.request import Request

#: How many younger requests may pass one that does not fit yet, before all younger ones wait: no starvation.
MAX_OVERTAKEN = 64
#: How many waiting requests are examined in one step: bounds the cost of a step when the pool is full.
MAX_LOOKED_AT = 64


class WaitingQueue:
    """Owner of the queue, and of when each request, waiting or running, last found no room."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._requests: list[Request] = []  # by arrival
        self._refused_at: dict[Request, int] = {}  # request -> the cache's release count when it found no room

    def __len__(self) -> int:
        return len(self._requests)

    def enqueue(self, request: Request) -> None:
        """Add a new or preempted request at its place by arrival."""
        request.num_overtaken = 0
        insort(self._requests, request, key=by_arrival)

    def dequeue(self, request: Request) -> None:
        """Remove a waiting request."""
        self._requests.remove(request)

    def start(self, request: Request, passed: Iterable[Request]) -> None:
        """Remove a request that fits; `passed` are the older ones that do not fit and go on waiting."""
        self.dequeue(request)
        self.forget_refusal(request)
        for other in passed:
            other.num_overtaken += 1

    def candidates(self) -> list[Request]:
        """The oldest waiting requests, as many as one step examines."""
        return self._requests[:MAX_LOOKED_AT]

    def may_be_passed(self, request: Request) -> bool:
        """Whether one more younger request may start before this one."""
        return request.num_overtaken < MAX_OVERTAKEN

    def note_refusal(self, request: Request) -> None:
        """The request found no room in the page pool."""
        self._refused_at[request] = self._cache.release_count

    def is_refused(self, request: Request) -> bool:
        """Whether no page has been freed since the request found no room."""
        return self._refused_at.get(request) == self._cache.release_count

    def forget_refusal(self, request: Request) -> None:
        """The request has started or ended."""
        self._refused_at.pop(request, None)


def by_arrival(request: Request) -> int:
    """Key that sorts requests first come, first served."""
    return request.arrival
