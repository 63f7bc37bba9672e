"""The limits of a device, as measured through torch in the same run: copies, and matrix products in bfloat16."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # bounds are computed without torch
    import torch

    from benchmarks.kernels.timing import Clock, WallClock

_COPY_BYTES = 2**30
_SQUARE = 8192
_CPU_COPY_BYTES = 2**24
_CPU_SQUARE = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes a second that a device reads and writes, and operations a second of its matrix products."""

    bytes_per_s: float
    flops: float

    def seconds(self, num_bytes: float, flops: float = 0.0) -> float:
        """What moving that many bytes and computing that many operations takes at least: they overlap."""
        return max(num_bytes / self.bytes_per_s, flops / self.flops)


#: What torch reaches on one in copies and large products. A run on a device compares with what it measures itself.
H200 = Limits(bytes_per_s=4.3e12, flops=790e12)


def measure_limits(clock: "Clock | WallClock", device: "torch.device") -> Limits:
    """Of this device; of a CPU with small operands, only so that there are some."""
    import torch

    is_cpu = device.type == "cpu"
    copy_bytes, square = (_CPU_COPY_BYTES, _CPU_SQUARE) if is_cpu else (_COPY_BYTES, _SQUARE)
    source = torch.randn(copy_bytes // 4, device=device)  # a device is faster with numbers that are all alike
    destination = torch.empty_like(source)
    a, b = torch.randn(2, square, square, device=device, dtype=torch.bfloat16)
    product = torch.empty_like(a)
    return Limits(
        bytes_per_s=2 * copy_bytes / clock.microseconds(lambda: destination.copy_(source)) * 1e6,
        flops=2 * square**3 / clock.microseconds(lambda: torch.mm(a, b, out=product)) * 1e6,
    )
