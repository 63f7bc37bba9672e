"""The steps in flight: launched, and not yet collected. A step may compute while the next one is planned.

The core adds and removes steps. The scheduler reads the number of steps, because preemption and failed allocations wait
until no step is in flight. The page cache is told of each launch and end, because a step in flight may still read or
write a page that has been freed. Knows no requests.
"""

from collections import deque

from engine.batch import StepPlan
from engine.memory.kv_cache import KVCache


class InFlight:
    """The plans of the steps in flight, oldest first. Its length is their number."""

    def __init__(self, cache: KVCache, max_steps: int = 1) -> None:
        """max_steps: Runner.max_in_flight. At most 2: a plan can refer to pending tokens of one earlier step only."""
        assert max_steps in (1, 2)
        self._cache = cache
        self._max_steps = max_steps
        self._plans: deque[StepPlan] = deque()

    def __len__(self) -> int:
        return len(self._plans)

    @property
    def is_full(self) -> bool:
        """The oldest step must be collected before another one is planned."""
        return len(self._plans) == self._max_steps

    def note_launch(self, plan: StepPlan) -> None:
        """The runner has launched this step."""
        assert not self.is_full
        self._plans.append(plan)
        self._cache.note_launch(plan.step)

    def take_oldest(self) -> StepPlan:
        """Remove the oldest step, whose output has been collected."""
        plan = self._plans.popleft()
        self._cache.note_end(plan.step)
        return plan
