"""A circuit breaker per worker: while most of its recent answers fail it gets no requests for a while, then one probe.

A worker whose address refuses connections gets no requests until its next heartbeat. Only failures of the worker count
(wire.errors.Blame): refused connections, answers 5xx, streams that break or stall. All failures that one caller has met
count once, so that no caller takes a worker away from the others; only lost connections count each time.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

FAILURES_TO_OPEN = 3  #: fewer are no reason
RECENT_ANSWERS = 20
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
PROBE_S = 30.0  #: after this time without a result a probe counts as lost, and another may be sent

WorkerStart = tuple[str, int]  #: worker id and epoch, so that a restarted worker begins without failures


@dataclass
class _Record:
    #: For each of the last answers: None if it was complete, else who met the failure (empty: no caller in particular).
    recent: deque[str | None] = field(default_factory=lambda: deque(maxlen=RECENT_ANSWERS))
    is_open: bool = False
    pause_s: float = FIRST_PAUSE_S
    blocked_until: float = 0.0  #: no requests before this time of `clock`
    refused_ms: int = -1  #: when its address last refused a connection, by the store's clock

    def mostly_fails(self) -> bool:
        """Whether enough recent answers failed, and more than were complete."""
        callers = [caller for caller in self.recent if caller is not None]
        num_failures = callers.count("") + len(set(callers) - {""})
        return num_failures >= FAILURES_TO_OPEN and num_failures > self.recent.count(None)


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
        return not record.is_open or self._clock() >= record.blocked_until

    def chosen(self, worker: WorkerStart) -> None:
        """Note that a request is sent. If it is the probe after a pause, no other follows until the probe has ended."""
        record = self._records.get(worker)
        if record is not None and record.is_open:
            record.blocked_until = self._clock() + PROBE_S

    def succeeded(self, worker: WorkerStart) -> None:
        """Note a complete answer. It closes an open circuit, which forgets all failures."""
        record = self._records.setdefault(worker, _Record())
        if record.is_open:
            record = self._records[worker] = _Record()
        record.refused_ms = -1
        record.recent.append(None)

    def failed(self, worker: WorkerStart, caller: str | None = None) -> None:
        """Count a failure that `caller` has met; None: a lost connection. While most answers fail, and
        after a failed probe, pause, for twice as long each time."""
        record = self._records.setdefault(worker, _Record())
        record.recent.append(caller or "")
        if record.is_open or record.mostly_fails():
            record.is_open = True
            record.blocked_until = self._clock() + record.pause_s
            record.pause_s = min(2 * record.pause_s, LONGEST_PAUSE_S)

    def refused(self, worker: WorkerStart, now_ms: int) -> None:
        """Note that the worker's address refused a connection: the process has ended, although its registration may
        last some seconds more. Only a heartbeat after `now_ms` (store's clock) lifts this. It does not count as a
        failure unless `failed` is called as well."""
        self._records.setdefault(worker, _Record()).refused_ms = now_ms

    def forget_all_but(self, workers: set[WorkerStart]) -> None:
        """Drop the records of all other workers, which bounds the number of records."""
        for worker in set(self._records) - workers:
            del self._records[worker]
