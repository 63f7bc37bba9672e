"""How long idle threads of an engine stay awake. No torch: decided before torch is imported.

There are two kinds of idle time, and each has its spin counts in one place:

* Between two steps OpenMP's threads wait for the next step. Their spin count is here.
* Within a step threads wait for one another at the end of a phase. Those counts are `kTries` and `kTriesAlone` of
  `engine/kernels/cpu/barrier.h`: about 50 us in a loop, giving the core away every 10 us, then sleep.
"""

from collections.abc import Mapping

#: Read by GNU OpenMP when torch is imported: turns of a loop that an idle thread makes before it sleeps.
SPIN_VARIABLE = "GOMP_SPINCOUNT"
#: About 30 us. OpenMP's own choice keeps threads awake for milliseconds after each step, on cores that another worker,
#: the controller or the store need: with it, two workers of two threads on two busy cores took 57 % longer and 67 %
#: more CPU time (docs/workers.md).
SPIN_COUNT = 2000


def bounded_spinning(num_threads: int, num_cores: int) -> Mapping[str, str]:
    """Environment variables for processes whose engine threads, `num_threads` in all, run on `num_cores` cores.

    Empty where a core is left for other processes: OpenMP's own choice costs nothing there. A value that is already in
    the environment takes precedence.
    """
    return {SPIN_VARIABLE: str(SPIN_COUNT)} if num_threads >= num_cores else {}
