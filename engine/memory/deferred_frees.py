"""Pages that were freed while a step in flight may still read or write them: they count as used until that step ends.

While no step is in flight, every release is immediate.
"""

from collections import deque
from collections.abc import Iterator

from engine.memory.small_pool import SmallPool


class DeferredFrees:
    """Releases a page once every step that was launched or being planned when the page was freed has ended."""

    def __init__(self) -> None:
        self._planned = 0  # the newest step that is being planned or was launched
        self._launched = 0  # the newest that was launched
        self._ended = 0  # the newest of those that have ended
        self._waiting: deque[tuple[int, SmallPool, int, int]] = deque()  # (step, pool, page, its time stamp)

    def begin_step(self, step: int) -> None:
        """The scheduler plans this step now: pages freed from here on may be in its plan."""
        self._planned = step

    def launch(self, step: int) -> None:
        """This step is in flight from now on."""
        self._launched = step

    def end(self, step: int) -> int:
        """This step and all before it have ended. Releases the pages that only they could touch; returns the number."""
        assert self._ended <= step <= self._launched
        self._ended = step
        # With nothing in flight, also the pages freed by a step that was planned but never launched.
        last = step if step < self._launched else self._planned
        waiting, num_released = self._waiting, 0
        while waiting and waiting[0][0] <= last:
            _, pool, page, last_access = waiting.popleft()
            pool.release(page, last_access)
            num_released += 1
        return num_released

    def release(self, pool: SmallPool, page: int, last_access: int) -> None:
        """Remove one reference, now or when the steps in flight have ended. last_access: time stamp for eviction."""
        if self._ended == self._launched:
            pool.release(page, last_access)
        else:
            self._waiting.append((self._planned, pool, page, last_access))

    def pages_of(self, pool: SmallPool) -> Iterator[int]:
        """Freed pages of this pool that are not available yet; a page freed by several holders occurs several times."""
        return (page for _, other, page, _ in self._waiting if other is pool)
