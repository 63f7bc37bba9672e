"""Rate limits that one process keeps in its memory: buckets of the generic cell rate algorithm (GCRA), by name."""

import time

MAX_REMEMBERED = 20_000  #: buckets of which a process knows how full they are


class BucketMemory:
    """When each bucket will be empty, as far as this process knows: what a shared store said last, and what was taken
    without it. Of at most MAX_REMEMBERED buckets; those that are empty, and the oldest ones, are forgotten first."""

    def __init__(self) -> None:
        self._empty_at: dict[str, int] = {}  #: microseconds of time.monotonic()

    def note(self, bucket: str, filled_us: int) -> None:
        """A shared store has said that the bucket is empty after `filled_us`."""
        now = time.monotonic_ns() // 1000
        self._empty_at.pop(bucket, None)
        self._empty_at[bucket] = now + filled_us
        if len(self._empty_at) > MAX_REMEMBERED:
            kept = [(name, empty_at) for name, empty_at in self._empty_at.items() if empty_at > now]
            self._empty_at = dict(kept[-MAX_REMEMBERED // 2 :])

    def take(self, bucket: str, interval_us: int, burst: int) -> tuple[int, int]:
        """As gcra.lua: 0 or the microseconds until there is a place, and the microseconds until the bucket is empty."""
        now = time.monotonic_ns() // 1000
        arrival = max(self._empty_at.get(bucket, now), now)
        wait_us = arrival + interval_us - (now + interval_us * burst)
        if wait_us > 0:
            return wait_us, arrival - now
        self.note(bucket, arrival + interval_us - now)
        return 0, arrival + interval_us - now
