"""Pages that were freed while a step was in flight that may still read or write them: they count as used until it ends.

While no step is in flight every release is immediate.
"""

from collections import deque
from collections.abc import Iterator

from engine.memory.small_pool import SmallPool


class DeferredFrees:
    """Releases pages when every step has ended that was launched or being planned when they were freed."""

    def __init__(self) -> None:
        self._planned = 0  # the newest step that anybody plans or has launched
        self._launched = 0  # the newest that was launched
        self._ended = 0  # the newest of those that have ended
        self._waiting: deque[tuple[int, SmallPool, int, int]] = deque()  # (step, pool, page, its time stamp)

    def begin_step(self, step: int) -> None:
        self._planned = step

    def launch(self, step: int) -> None:
        self._launched = step

    def end(self, step: int) -> int:
        """This step and all before it have ended. Releases what only they could touch; returns the number of pages."""
        assert self._ended <= step <= self._launched
        self._ended = step
        # With nothing in flight also what a step freed that was planned and never launched.
        last = step if step < self._launched else self._planned
        waiting, num_released = self._waiting, 0
        while waiting and waiting[0][0] <= last:
            _, pool, page, last_access = waiting.popleft()
            pool.release(page, last_access)
            num_released += 1
        return num_released

    def release(self, pool: SmallPool, page: int, last_access: int) -> None:
        """One reference less, now or when the steps in flight have ended."""
        if self._ended == self._launched:
            pool.release(page, last_access)
        else:
            self._waiting.append((self._planned, pool, page, last_access))

    def pages_of(self, pool: SmallPool) -> Iterator[int]:
        """Freed pages of this pool that cannot be had yet; one that was freed by several holders occurs as often."""
        return (page for _, other, page, _ in self._waiting if other is pool)
