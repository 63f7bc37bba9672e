"""A circuit breaker per worker: after failures in a row it gets no work for a while, then one probe. One that nobody
listens for any more gets none until it is heard of again.

Only failures of the worker count: connections refused, answers 5xx, streams that break or stand still. Requests that
the worker rightly refuses (4xx), a full queue and clients that leave never do.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
PROBE_S = 30.0  #: a probe that neither failed nor succeeded by then is forgotten, and another may be sent

WorkerStart = tuple[str, int]  #: worker id and epoch: a restarted worker starts with a clean record


@dataclass
class _Record:
    failures: int = 0
    pause_s: float = FIRST_PAUSE_S
    closed_until: float = 0.0  #: no work before this time
    refused_ms: int = -1  #: when its address refused a connection, by the store's clock


class CircuitBreaker:
    """Kept per controller: what one controller cannot reach, another may."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[WorkerStart, _Record] = {}

    def allows(self, worker: WorkerStart, beat_ms: int) -> bool:
        """beat_ms: its last heartbeat, by the store's clock."""
        record = self._records.get(worker)
        if record is None:
            return True
        if beat_ms <= record.refused_ms:
            return False
        return record.failures < FAILURES_TO_OPEN or self._clock() >= record.closed_until

    def chosen(self, worker: WorkerStart) -> None:
        """Work is being sent: where it is the probe after a pause, nothing else shall follow until it has ended."""
        record = self._records.get(worker)
        if record is not None and record.failures >= FAILURES_TO_OPEN:
            record.closed_until = self._clock() + PROBE_S

    def succeeded(self, worker: WorkerStart) -> None:
        self._records.pop(worker, None)

    def failed(self, worker: WorkerStart) -> None:
        record = self._records.setdefault(worker, _Record())
        record.failures += 1
        if record.failures >= FAILURES_TO_OPEN:
            record.closed_until = self._clock() + record.pause_s
            record.pause_s = min(2 * record.pause_s, LONGEST_PAUSE_S)

    def refused(self, worker: WorkerStart, now_ms: int) -> None:
        """Its address refused a connection: the process is gone, though its lease may run for seconds yet. A heartbeat
        from after this moment shows otherwise. Counts as a failure only where `failed` is called, too."""
        self._records.setdefault(worker, _Record()).refused_ms = now_ms

    def forget_all_but(self, workers: set[WorkerStart]) -> None:
        """Drop records of workers that are gone, so that the table of records stays small."""
        for worker in set(self._records) - workers:
            del self._records[worker]
