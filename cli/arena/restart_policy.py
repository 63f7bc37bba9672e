"""Decides when a dead process is started again. It never gives up: whatever killed the process, a full disk for
instance, may pass. Knows no process: durations in, a delay out."""

import math
import random
from dataclasses import dataclass


@dataclass(slots=True)
class RestartPolicy:
    """Exponential back-off with a ceiling and jitter. Time that the process was ready takes deaths back, so one that is
    killed now and then is started again at once, and one that dies at every start hardly costs anything. Mutable."""

    first_delay_s: float = 0.2
    max_delay_s: float = 30.0
    jitter: float = 0.2  #: largest share of a delay that is left out, so that processes do not start in step
    forgiven_s: float = 3.0  #: seconds in the ready state that take one death back
    num_deaths: int = 0  #: without those taken back; no more than lead to the longest delay

    def delay_after_death(self, ready_s: float) -> float:
        """Seconds before the next start. `ready_s`: how long the process had been ready."""
        self.num_deaths = max(0, self.num_deaths - int(ready_s / self.forgiven_s))
        delay_s = min(self.max_delay_s, self.first_delay_s * 2.0**self.num_deaths)
        # Deaths beyond the ceiling do not count: half a minute of health clears the record of a long outage, too.
        self.num_deaths = min(self.num_deaths + 1, math.ceil(math.log2(self.max_delay_s / self.first_delay_s)))
        return delay_s * (1.0 - self.jitter * random.random())
