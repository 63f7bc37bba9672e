"""Counter-based random numbers (Salmon et al., SC'11): the n-th number of a seed without computing the ones before it.

So a sampled token depends on its own seed and position only, not on other rows of the batch.
"""

import numpy as np
from numpy.typing import NDArray

UInt64 = NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10


def philox4x32(counter: UInt64, key: UInt64) -> UInt64:
    """Philox-4x32-10 of each column. counter [4, n], key [2, n] and the result [4, n] hold 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return np.stack((c0, c1, c2, c3))


def uniform(seeds: UInt64, counters: UInt64) -> NDArray[np.float64]:
    """One number in [0, 1) with 53 random bits for each (seed, counter); both [n]."""
    zeros = np.zeros_like(counters)
    words = philox4x32(
        np.stack((counters & _LOW, counters >> _SHIFT, zeros, zeros)), np.stack((seeds & _LOW, seeds >> _SHIFT))
    )
    bits = ((words[0] << _SHIFT) | words[1]) >> np.uint64(11)
    numbers: NDArray[np.float64] = bits.astype(np.float64) * 2.0**-53
    return numbers
