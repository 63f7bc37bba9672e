"""Flags of votes as bits, so that a column of a vote table holds all reasons why a vote is not rated."""

from collections.abc import Iterable
from typing import Final, get_args

import numpy as np
import numpy.typing as npt

from wire.votes import VoteFlag

BitArray = npt.NDArray[np.uint16]

#: In the order of the bits, which checkpoints store: a new flag goes before "other", and gets a new checkpoint format.
FLAGS: Final[tuple[str, ...]] = (*get_args(VoteFlag), "other")
NAMED: Final = 1 << FLAGS.index("named")
SAME_MODEL: Final = 1 << FLAGS.index("same_model")
_BITS: Final = {flag: 1 << position for position, flag in enumerate(FLAGS)}
assert len(FLAGS) <= np.iinfo(np.uint16).bits


def flag_bits(flags: Iterable[str]) -> int:
    """The bits of `flags`; a flag of another arena that we do not know is "other"."""
    bits = 0
    for flag in flags:
        bits |= _BITS.get(flag, _BITS["other"])
    return bits


def count_flags(bits: BitArray) -> dict[str, int]:
    """How many entries of `bits` [votes] have each flag, without flags that none has."""
    counts = {flag: int(np.count_nonzero(bits & bit)) for flag, bit in _BITS.items()}
    return {flag: count for flag, count in counts.items() if count}
