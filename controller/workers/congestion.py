"""What a controller knows about full workers: which ones, for how long, and when a refused client should come back.

Kept in this process only, so that a refusal under overload costs neither a call to the store nor a write.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Literal

from service_kit.retry_after import RetryAfter
from wire.ids import WorkerId

FULL_S = 0.1  #: a worker that the store has called full is not asked for again so soon, unless a place became free here
REMIND_S = 0.5  #: the store is told at most this often of refusals that were decided without it

#: Work that shares the workers. While both kinds are refused, each gets half of the places (reserve_leases.lua).
Kind = Literal["battle", "chat"]
KINDS: tuple[Kind, Kind] = ("battle", "chat")


class Congestion:
    """Owns the verdicts on full workers and the counts of refusals. Runs on the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_until: dict[tuple[WorkerId, Kind], float] = {}
        self._reminded_at: dict[tuple[WorkerId, Kind], float] = {}
        self._retry_after: defaultdict[str, RetryAfter] = defaultdict(lambda: RetryAfter(clock))  #: by model

    def note_full(self, worker_id: WorkerId, kind: Kind) -> None:
        """The store has called the worker full for this kind of work."""
        self._full_until[worker_id, kind] = self._clock() + FULL_S

    def note_free(self, worker_id: WorkerId) -> None:
        """A place at the worker has become free."""
        for kind in KINDS:
            self._full_until.pop((worker_id, kind), None)

    def is_full(self, worker_id: WorkerId, kind: Kind) -> bool:
        """Whether the store has just called the worker full."""
        return self._full_until.get((worker_id, kind), -math.inf) > self._clock()

    def accepted(self, model: str) -> None:
        """Count a request that got a place."""
        self._retry_after[model].accepted()

    def refused(self, model: str) -> float:
        """Count a request that got none. Returns the seconds after which its client should ask again."""
        retry_after = self._retry_after[model]
        retry_after.refused()
        return retry_after.seconds()

    def unaware(self, workers: Iterable[WorkerId], kind: Kind) -> list[WorkerId]:
        """Those of `workers` of whose refusals the store has not been told for REMIND_S. The caller tells it now."""
        now = self._clock()
        due = [worker for worker in workers if now - self._reminded_at.get((worker, kind), -math.inf) > REMIND_S]
        self._reminded_at.update(((worker, kind), now) for worker in due)
        return due

    def forget_all_but(self, workers: set[WorkerId], models: set[str]) -> None:
        """Drop what is kept about workers and models that are gone."""
        for verdicts in (self._full_until, self._reminded_at):
            for key in [key for key in verdicts if key[0] not in workers]:
                del verdicts[key]
        for model in self._retry_after.keys() - models:
            del self._retry_after[model]
