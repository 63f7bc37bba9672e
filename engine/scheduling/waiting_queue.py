"""The requests that wait for pages and slots, in the order in which they may start.

Those of lower SamplingParams.priority first, and first come, first served among equal ones, except that requests that
fit may pass an earlier one that does not, a bounded number of times. A request of high priority value waits as long as
others of lower value keep coming: that is what its caller asked for.
The scheduler decides what fits. The queue asks the page cache only whether pages have been freed since a request found
no room.
"""

from bisect import insort
from collections.abc import Iterable

from engine.memory.kv_cache import KVCache
from engine.request import Request

#: How many later requests may pass one that does not fit yet, before all later ones wait: no starvation.
MAX_OVERTAKEN = 64
#: How many waiting requests are examined in one step: bounds the cost of a step when the pool is full.
MAX_LOOKED_AT = 64


class WaitingQueue:
    """Owner of the queue, and of when each request, waiting or running, last found no room."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._requests: list[Request] = []  # by rank
        self._refused_at: dict[Request, int] = {}  # request -> the cache's release count when it found no room

    def __len__(self) -> int:
        return len(self._requests)

    def enqueue(self, request: Request) -> None:
        """Add a new or preempted request at its place in the order."""
        request.num_overtaken = 0
        insort(self._requests, request, key=by_rank)

    def dequeue(self, request: Request) -> None:
        """Remove a waiting request."""
        self._requests.remove(request)

    def start(self, request: Request, passed: Iterable[Request]) -> None:
        """Remove a request that fits; `passed` are the earlier ones that do not fit and go on waiting."""
        self.dequeue(request)
        self.forget_refusal(request)
        for other in passed:
            other.num_overtaken += 1

    def all(self) -> list[Request]:
        """All waiting requests."""
        return list(self._requests)

    def candidates(self) -> list[Request]:
        """The first waiting requests, as many as one step examines."""
        return self._requests[:MAX_LOOKED_AT]

    def may_be_passed(self, request: Request) -> bool:
        """Whether one more later request may start before this one."""
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


def by_rank(request: Request) -> tuple[int, int]:
    """Key that sorts requests by priority, equal ones first come, first served."""
    return request.params.priority, request.arrival
