"""Pages that were freed while a step was in flight that may still read or write them: they count as used until it ends.

Without a delay every release is immediate.
"""

from collections import deque
from collections.abc import Iterator

from engine.memory.small_pool import SmallPool


class DeferredFrees:
    """Releases pages a fixed number of steps later, in the order in which they were freed."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._step = 0
        self._waiting: deque[tuple[int, SmallPool, int, int]] = deque()  # (due step, pool, page, its time stamp)

    def release(self, pool: SmallPool, page: int, last_access: int) -> None:
        """One reference less, now or when the step comes that is num_steps after the current one."""
        if self._num_steps:
            self._waiting.append((self._step + self._num_steps, pool, page, last_access))
        else:
            pool.release(page, last_access)

    def begin_step(self, step: int) -> int:
        """Release what is due in this step; returns the number of pages."""
        self._step = step
        waiting, num_released = self._waiting, 0
        while waiting and waiting[0][0] <= step:
            _, pool, page, last_access = waiting.popleft()
            pool.release(page, last_access)
            num_released += 1
        return num_released

    def settle(self) -> int:
        """No step is in flight: release everything at once."""
        step = self._step
        num_released = self.begin_step(step + self._num_steps)
        self._step = step
        return num_released

    def pages_of(self, pool: SmallPool) -> Iterator[int]:
        """Freed pages of this pool that cannot be had yet; one that was freed by several holders occurs as often."""
        return (page for _, other, page, _ in self._waiting if other is pool)
