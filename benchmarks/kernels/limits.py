"""The device's limits through torch, measured in the same run: copies, and matrix products in bfloat16."""

import torch

from benchmarks.kernels.case import Limits
from benchmarks.kernels.timing import Clock

_COPY_BYTES = 2**30
_SQUARE = 8192


def measure_limits(clock: Clock, device: torch.device) -> Limits:
    source = torch.randn(_COPY_BYTES // 4, device=device)  # a device is faster with numbers that are all alike
    destination = torch.empty_like(source)
    a, b = torch.randn(2, _SQUARE, _SQUARE, device=device, dtype=torch.bfloat16)
    product = torch.empty_like(a)
    return Limits(
        bytes_per_s=2 * _COPY_BYTES / clock.microseconds(lambda: destination.copy_(source)) * 1e6,
        flops=2 * _SQUARE**3 / clock.microseconds(lambda: torch.mm(a, b, out=product)) * 1e6,
    )
