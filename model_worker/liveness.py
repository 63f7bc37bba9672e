"""Whether the engine makes progress: its step counter must move while work waits. That HTTP answers is not enough."""

from wire.workers import Load


class Liveness:
    """Remembers when the step counter last moved. Called by every probe, and by the heartbeat each second, so that the
    time is known where probes are rare."""

    def __init__(self, *, stalled_s: float) -> None:
        self._stalled_s = stalled_s
        self._steps = -1
        self._moved_at = 0.0

    def is_moving(self, load: Load, now: float) -> bool:
        """False once work has waited for `stalled_s` without a step. `now` is a monotonic time."""
        has_work = load.running + load.waiting > 0
        if load.steps_total != self._steps or not has_work:
            self._steps, self._moved_at = load.steps_total, now
        return now - self._moved_at < self._stalled_s
