"""Memory for what a step computes on the way, kept between steps: page faults would cost more than the work.

Models whose steps are computed by one thread share one.
"""

import torch

_LINE = 64  #: bytes of a cache line


class Scratch:
    """Owner of the memory, which grows to the largest step. What is in it is lost with the next step."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def address_of(self, num_bytes: int) -> int:
        """Address of at least so many bytes, at the beginning of a cache line, until the next call."""
        if num_bytes + _LINE > len(self._memory):
            self._memory = torch.empty(num_bytes + _LINE, dtype=torch.uint8)
        return -(-self._memory.data_ptr() // _LINE) * _LINE
