"""What this machine can do at most, through torch and oneDNN: read bandwidth and matrix rates, measured beforehand.

An operator's limit is the longer of the time to read and write its bytes once and the time to do its arithmetic.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

#: Operands up to here are taken as cached in the last level; beyond, as read from memory.
CACHED_BYTES = 16 * 2**20
_MEMORY_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """GB/s of reading, and 1e9 operations per second of matrix products by dtype."""

    memory_gb_per_s: float
    cache_gb_per_s: float
    bfloat16_gflops: float
    float32_gflops: float
    int8_gops: float

    def best_of(self, other: "Limits") -> "Limits":
        return Limits(**{name: max(value, getattr(other, name)) for name, value in asdict(self).items()})

    def seconds(self, num_bytes: int, operations: int, dtype: torch.dtype) -> float:
        bandwidth = self.cache_gb_per_s if num_bytes <= CACHED_BYTES else self.memory_gb_per_s
        rate = self.bfloat16_gflops if dtype is torch.bfloat16 else self.float32_gflops
        return max(num_bytes / bandwidth, operations / rate) / 1e9


def measure_limits(seconds: float) -> Limits:
    large = torch.ones(_MEMORY_BYTES // 4)
    small = torch.ones(CACHED_BYTES // 4)
    square = 2048
    rates = {}
    for dtype in (torch.bfloat16, torch.float32):
        a, b = torch.randn(square, square, dtype=dtype), torch.randn(square, square, dtype=dtype)
        rates[dtype] = 2 * square**3 / best_seconds(_product(a, b), seconds) / 1e9
    whole = torch.randint(-127, 127, (square, square), dtype=torch.int8)
    return Limits(
        memory_gb_per_s=round(_MEMORY_BYTES / best_seconds(large.sum, seconds) / 1e9, 1),
        cache_gb_per_s=round(CACHED_BYTES / best_seconds(small.sum, seconds) / 1e9, 1),
        bfloat16_gflops=round(rates[torch.bfloat16], 1),
        float32_gflops=round(rates[torch.float32], 1),
        int8_gops=round(2 * square**3 / best_seconds(lambda: torch._int_mm(whole, whole), seconds) / 1e9, 1),
    )


def _product(a: torch.Tensor, b: torch.Tensor) -> Callable[[], object]:
    return lambda: torch.nn.functional.linear(a, b)


def sample_seconds(run: Callable[[], object], seconds: float) -> list[float]:
    """Times of single calls for about that long, after two that do not count; at least five."""
    run()
    run()
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < deadline:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return times


def best_seconds(run: Callable[[], object], seconds: float) -> float:
    return min(sample_seconds(run, seconds))
