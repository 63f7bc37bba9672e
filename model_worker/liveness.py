"""Whether the engine gets on: alive means that its step counter moves while work waits, not that HTTP answers."""

from wire.workers import Load


class Liveness:
    """Remembers when the step counter last moved. Asked by every probe and, so that rare probes judge well, by the
    heartbeat each second."""

    def __init__(self, *, stalled_s: float) -> None:
        self._stalled_s = stalled_s
        self._steps = -1
        self._moved_at = 0.0

    def is_moving(self, load: Load, now: float) -> bool:
        """`now` is a monotonic time."""
        has_work = load.running + load.waiting > 0
        if load.steps_total != self._steps or not has_work:
            self._steps, self._moved_at = load.steps_total, now
        return now - self._moved_at < self._stalled_s
