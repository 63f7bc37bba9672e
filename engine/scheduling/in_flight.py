"""The steps that the runner was given and whose outputs nobody has read yet: a step may compute while the next is
planned.

The core adds and takes them; the scheduler looks, because some things have to wait until nothing is in flight; the page
cache is told, because a page freed meanwhile may still be touched. Knows no requests.
"""

from collections import deque

from engine.batch import StepPlan
from engine.memory.kv_cache import KVCache


class InFlight:
    def __init__(self, cache: KVCache, max_steps: int = 1) -> None:
        """max_steps: as Runner.max_in_flight. A plan can refer to the tokens of one step before it, so not above 2."""
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

    def add(self, plan: StepPlan) -> None:
        """The runner has launched it."""
        assert not self.is_full
        self._plans.append(plan)
        self._cache.note_launch(plan.step)

    def take(self) -> StepPlan:
        """The oldest one; its output is here."""
        plan = self._plans.popleft()
        self._cache.note_end(plan.step)
        return plan
