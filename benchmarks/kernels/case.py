"""One kernel in one shape: the call, what it must move and compute at least, and what it is meant to reach."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

Call = Callable[[], object]
Make = Callable[[torch.device], Call]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of this device, measured in the same run: copies (bytes read and written) and matrix products by torch."""

    bytes_per_s: float
    flops: float


@dataclass(frozen=True, slots=True)
class Goal:
    """Either a share of the device's limit, or a time that a small call may take."""

    share: float | None = None
    microseconds: float | None = None

    def is_met(self, microseconds: float, bound_us: float) -> bool:
        if self.microseconds is not None:
            return microseconds <= self.microseconds
        assert self.share is not None
        return bound_us >= self.share * microseconds


@dataclass(frozen=True, slots=True)
class Case:
    kernel: str
    shape: str
    num_bytes: int  #: read and written, each once
    flops: int
    goal: Goal
    make: Make
    peer: Make | None = None  #: the same by torch, where torch has it

    def bound_us(self, limits: Limits) -> float:
        return 1e6 * max(self.num_bytes / limits.bytes_per_s, self.flops / limits.flops)
