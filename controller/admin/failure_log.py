"""Failures of the last day, counted by cause, model and worker: what the admin page shows.

Noting one costs an addition in memory; background work adds the counts to the store. Runs on the event loop.
"""

import json
import time
from collections.abc import Callable
from typing import Final, cast

from controller.store.keys import FAILURES_TTL_MS, Keys
from controller.store.store import Store
from wire.admin import FailureCount, FailuresView
from wire.errors import ApiError

FLUSH_S: Final = 2.0
MAX_KINDS: Final = 500  #: kinds of failure counted in one hour, and held in memory
HOURS: Final = 24
_HOUR_S: Final = 3600
_RATE_LIMITED: Final = "rate_limited"

_Kind = tuple[str, str, str]  # cause, model, worker


class FailureLog:
    """Owns the keys `failures`. `clock` gives the store's Unix time."""

    def __init__(self, store: Store, keys: Keys, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._unsaved: dict[_Kind, tuple[int, float]] = {}

    def note(self, cause: str, model: str, worker_id: str = "") -> None:
        """Count a failure. `cause` is one of a few words, nothing that a visitor wrote."""
        kind = (cause, model, worker_id)
        if kind in self._unsaved or len(self._unsaved) < MAX_KINDS:
            self._unsaved[kind] = (self._unsaved.get(kind, (0, 0.0))[0] + 1, self._clock())

    def note_rate_limited(self, kind: str) -> None:
        """Count a request of this kind that was refused because its address sent too many."""
        self.note(_RATE_LIMITED, kind)

    async def flush_round(self) -> None:
        """Add what was noted to the store. While the store is away it is kept."""
        if not self._unsaved:
            return
        unsaved, self._unsaved = self._unsaved, {}
        args: list[str | int | float] = [FAILURES_TTL_MS, MAX_KINDS]
        for kind, (count, last) in unsaved.items():
            args += [json.dumps(kind), count, round(last, 3)]
        try:
            await self._store.run("count_failures", [self._keys.failures(self._hour())], *args)
        except ApiError:
            for kind, (count, last) in unsaved.items():
                now = self._unsaved.get(kind, (0, 0.0))
                self._unsaved[kind] = (now[0] + count, max(now[1], last))

    async def view(self) -> FailuresView:
        """All failures of the last HOURS. Raises ApiError STORE_UNAVAILABLE."""
        await self.flush_round()
        counts: dict[_Kind, tuple[int, float]] = {}
        first = self._hour() - HOURS + 1
        for hour in range(first, first + HOURS):
            with self._store.guard("read_failures"):
                found = cast(dict[str, str], await self._store.redis.hgetall(self._keys.failures(hour)))
            for name, text in found.items():
                cause, model, worker_id = json.loads(name)
                count, last = json.loads(text)
                before = counts.get((cause, model, worker_id), (0, 0.0))
                counts[cause, model, worker_id] = (before[0] + count, max(before[1], last))
        failures = [
            FailureCount(cause=cause, model=model, worker_id=worker_id, count=count, last=last)
            for (cause, model, worker_id), (count, last) in counts.items()
            if cause != _RATE_LIMITED
        ]
        return FailuresView(
            failures=tuple(sorted(failures, key=lambda failure: (-failure.count, failure.cause, failure.model))),
            rate_limited={kind[1]: count for kind, (count, _) in counts.items() if kind[0] == _RATE_LIMITED},
            since=first * _HOUR_S,
        )

    def _hour(self) -> int:
        return int(self._clock()) // _HOUR_S
