"""A circuit breaker per worker: after failures in a row the worker gets no requests for a while, then one probe.

A worker whose address refuses connections gets no requests until its next heartbeat. Only failures of the worker count:
refused connections, answers 5xx, streams that break or stall. Requests that the worker rightly refuses (4xx), a full
queue and clients that disconnect never count.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
PROBE_S = 30.0  #: after this time without a result a probe counts as lost, and another may be sent

WorkerStart = tuple[str, int]  #: worker id and epoch, so that a restarted worker begins without failures


@dataclass
class _Record:
    failures: int = 0
    pause_s: float = FIRST_PAUSE_S
    blocked_until: float = 0.0  #: no requests before this time of `clock`
    refused_ms: int = -1  #: when its address last refused a connection, by the store's clock


class CircuitBreaker:
    """Owns the failure records of this controller. They are not shared, because another controller may reach a worker
    that this one cannot. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[WorkerStart, _Record] = {}

    def allows(self, worker: WorkerStart, beat_ms: int) -> bool:
        """Whether `worker` may get a request. `beat_ms` is its last heartbeat, by the store's clock."""
        record = self._records.get(worker)
        if record is None:
            return True
        if beat_ms <= record.refused_ms:
            return False
        return record.failures < FAILURES_TO_OPEN or self._clock() >= record.blocked_until

    def chosen(self, worker: WorkerStart) -> None:
        """A request is being sent. If it is the probe after a pause, no other follows until the probe has ended."""
        record = self._records.get(worker)
        if record is not None and record.failures >= FAILURES_TO_OPEN:
            record.blocked_until = self._clock() + PROBE_S

    def succeeded(self, worker: WorkerStart) -> None:
        """An answer came to its end: forget all failures."""
        self._records.pop(worker, None)

    def failed(self, worker: WorkerStart) -> None:
        """Count a failure; from FAILURES_TO_OPEN in a row on, pause for twice as long each time."""
        record = self._records.setdefault(worker, _Record())
        record.failures += 1
        if record.failures >= FAILURES_TO_OPEN:
            record.blocked_until = self._clock() + record.pause_s
            record.pause_s = min(2 * record.pause_s, LONGEST_PAUSE_S)

    def refused(self, worker: WorkerStart, now_ms: int) -> None:
        """Its address refused a connection: the process is gone, although its registration may last some seconds more.
        A heartbeat after `now_ms` (store's clock) proves otherwise. It is no failure unless `failed` is called, too."""
        self._records.setdefault(worker, _Record()).refused_ms = now_ms

    def forget_all_but(self, workers: set[WorkerStart]) -> None:
        """Drop the records of all other workers, so that records do not pile up."""
        for worker in set(self._records) - workers:
            del self._records[worker]
