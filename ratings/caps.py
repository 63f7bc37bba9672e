"""Votes beyond a cap: of one voter, network or prompt on one day, the first votes count. Knows no log and no names."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

UNKNOWN = -1  #: key of a vote whose voter, network or prompt is not known: it is never beyond a cap


def beyond_cap(keys: IntArray, days: IntArray, cap: int) -> BoolArray:
    """Which votes come after the first `cap` with the same key on the same day.

    `keys` and `days` have one entry per vote, in the order of the log. A cap of 0 is none.
    """
    beyond = np.zeros(len(keys), dtype=np.bool_)
    known = np.flatnonzero(keys != UNKNOWN)
    if cap <= 0 or not len(known):
        return beyond
    order = known[np.lexsort((known, keys[known], days[known]))]
    starts = np.ones(len(order), dtype=np.bool_)
    starts[1:] = (np.diff(keys[order]) != 0) | (np.diff(days[order]) != 0)
    positions = np.arange(len(order))
    ranks = positions - np.maximum.accumulate(np.where(starts, positions, 0))
    beyond[order[ranks >= cap]] = True
    return beyond
