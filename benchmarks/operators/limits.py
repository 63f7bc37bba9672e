"""The machine's limits, measured beforehand: read bandwidth, and rates of matrix products: those of torch (oneDNN, MKL)
or the engine's own, whichever is faster. On some processors torch's products in float32 reach half of what there is.

An operator's limit is the longer of the time to read and write its bytes once and the time to do its arithmetic. Where
the processor has no instructions for a format, or torch no use for them, the rate in float32 is its rate: any processor
can multiply a format's values as floats.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from engine.kernels.choice import choose_operators

#: Operands up to this size count as cached in the last level, larger ones as read from memory.
CACHED_BYTES = 16 * 2**20
_MEMORY_BYTES = 256 * 2**20
_SQUARE, _SMALL_SQUARE = 2048, 256
_SLOW_GFLOPS = 50.0  #: of a small product; a large one would take a third of a second and more


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


def measure_limits(seconds: float, *, is_quick: bool = False) -> Limits:
    """is_quick: with small products only, for runs whose figures do not matter."""
    large = torch.ones(_MEMORY_BYTES // 4)
    small = torch.ones(CACHED_BYTES // 4)
    rate = _rate_of_small if is_quick else _rate
    float32_gflops = rate(torch.float32, seconds)
    return Limits(
        memory_gb_per_s=round(_MEMORY_BYTES / best_seconds(large.sum, seconds) / 1e9, 1),
        cache_gb_per_s=round(CACHED_BYTES / best_seconds(small.sum, seconds) / 1e9, 1),
        bfloat16_gflops=max(float32_gflops, rate(torch.bfloat16, seconds)),
        float32_gflops=float32_gflops,
        int8_gops=max(float32_gflops, rate(torch.int8, seconds)),
    )


def _rate(dtype: torch.dtype, seconds: float) -> float:
    """1e9 operations per second of square products: large ones, unless they would take too long."""
    rate = _rate_of_small(dtype, seconds)
    return _rate_of(_SQUARE, dtype, seconds) if rate > _SLOW_GFLOPS else rate


def _rate_of_small(dtype: torch.dtype, seconds: float) -> float:
    return _rate_of(_SMALL_SQUARE, dtype, seconds)


def _rate_of(square: int, dtype: torch.dtype, seconds: float) -> float:
    a, b = (torch.randint(-127, 127, (square, square)).to(dtype) for _ in range(2))
    best = min(best_seconds(product, seconds) for product in _products(a, b))
    return round(2 * square**3 / best / 1e9, 1)


def _products(a: torch.Tensor, b: torch.Tensor) -> list[Callable[[], object]]:
    """Torch's product and, of floats, the engine's."""
    if a.dtype is torch.int8:
        return [lambda: torch._int_mm(a, b)]
    own = choose_operators(a.device, a.dtype, torch.get_num_threads(), allow_compiled=True).linear(b, None)
    return [lambda: torch.nn.functional.linear(a, b), lambda: own(a)]


def sample_seconds(run: Callable[[], object], seconds: float) -> list[float]:
    """Times of single calls during about that many seconds, at least five, after two calls that do not count."""
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
