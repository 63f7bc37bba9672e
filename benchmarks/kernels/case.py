"""One kernel in one shape: the call, the bytes and operations that it needs at least, and its goal."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.kernels.limits import Limits

Call = Callable[[], object]
Make = Callable[[torch.device], Call]


@dataclass(frozen=True, slots=True)
class Goal:
    """Either a share of the device's limit, or a time for a small call."""

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
    goal: Goal | None
    make: Make
    peer: Make | None = None  #: the same by torch, where torch has it
    #: Within a step, the kernel before it has just written what it reads. Then a goal in microseconds is one for a warm
    #: cache; a share of the bound is one of the device's memory in any case.
    is_warm: bool = False

    def bound_us(self, limits: Limits) -> float:
        return 1e6 * limits.seconds(self.num_bytes, self.flops)
