"""Decides if and when a dead process is started again. Pure: durations in, a delay or None out."""

from dataclasses import dataclass


@dataclass(slots=True)
class RestartPolicy:
    """Exponential back-off. It is reset after a stable run, and gives up after too many quick deaths in a row.
    Mutable."""

    first_delay_s: float = 0.2
    max_delay_s: float = 10.0
    stable_s: float = 30.0  #: a process that was ready for this long resets the count of deaths
    max_quick_deaths: int = 5
    quick_deaths: int = 0

    def delay_after_death(self, ready_s: float) -> float | None:
        """Seconds before the next start, or None to give up. `ready_s`: how long the process had been ready."""
        if ready_s >= self.stable_s:
            self.quick_deaths = 0
        self.quick_deaths += 1
        if self.quick_deaths >= self.max_quick_deaths:
            return None
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** (self.quick_deaths - 1))
