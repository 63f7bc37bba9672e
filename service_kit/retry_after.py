"""How long a refused client should wait before it asks again."""

import math
import time
from collections.abc import Callable

WINDOW_S = 10.0  #: older requests hardly count
SHORTEST_S = 1.0
LONGEST_S = 60.0
_FEWEST = 0.5  #: accepted requests within the window are taken to be at least this many


class RetryAfter:
    """Counts the requests accepted and refused lately.

    The wait is the time after which all those refused lately would have been accepted, at the rate of lately. Counts
    decay exponentially with the time constant WINDOW_S.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accepted = 0.0
        self._refused = 0.0
        self._at = clock()

    def accepted(self) -> None:
        """Count a request that was accepted."""
        self._decay()
        self._accepted += 1

    def refused(self) -> None:
        """Count a request that was refused."""
        self._decay()
        self._refused += 1

    def seconds(self) -> float:
        """The wait in seconds, between SHORTEST_S and LONGEST_S."""
        self._decay()
        wait_s = WINDOW_S * self._refused / max(self._accepted, _FEWEST)
        return min(max(wait_s, SHORTEST_S), LONGEST_S)

    def _decay(self) -> None:
        now = self._clock()
        share = math.exp((self._at - now) / WINDOW_S)
        self._accepted *= share
        self._refused *= share
        self._at = now
