"""Microseconds of one call: on a CUDA device by replays of a graph, as it runs in a captured step; on a CPU by the wall
clock, only so that everything around it is tested."""

import statistics
import time
from collections.abc import Callable

import torch

_CALLS = 10  #: in one graph
_REPLAYS = 20
#: Five times the second-level cache of an H200 is overwritten before every call: what a call reads lies in memory.
_FLUSH_BYTES = 256 * 2**20
#: An idle device runs at a fraction of its clock rate, and takes a while to speed up.
_WAKE_UP_S = 1.0
_WARM_UP_S = 0.02
#: Least result for a call that takes less than the clock resolves; not zero, because shares divide by it.
_LEAST_US = 0.1


class Clock:
    """Measures a call together with the cache flush before it, and subtracts the flush alone. Both are replayed in
    turns, so that the device's clocks are the same for both."""

    def __init__(self, device: torch.device) -> None:
        self._junk = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device=device)
        self._flush = self._capture(None, _CALLS, is_cold=True)
        _replay_for(self._flush, _WAKE_UP_S)

    def microseconds(self, call: Callable[[], object]) -> float:
        """Of a call that reads from memory all that it reads."""
        call()  # compiles what is compiled on first use
        whole = self._capture(call, _CALLS, is_cold=True)
        return _difference_us(whole, self._flush) / _CALLS

    def warm_microseconds(self, call: Callable[[], object]) -> float:
        """Of a call right after the same call: the cache holds what it reads, as far as there is room. Starting the
        graph does not count."""
        call()
        few, many = (self._capture(call, count, is_cold=False) for count in (_CALLS, 4 * _CALLS))
        return _difference_us(many, few) / (3 * _CALLS)

    def _capture(self, call: Callable[[], object] | None, num_calls: int, *, is_cold: bool) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(num_calls):
                if is_cold:
                    self._junk.zero_()
                if call is not None:
                    call()
        return graph


class WallClock:
    """For the interpreter: the least of two calls, with whatever the cache holds."""

    def microseconds(self, call: Callable[[], object]) -> float:
        """With all that Python and Triton's interpreter do."""
        times = []
        for _ in range(2):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        return max(1e6 * min(times), _LEAST_US)

    warm_microseconds = microseconds


def clock_of(device: torch.device) -> Clock | WallClock:
    """Graph replays on a CUDA device, the clock on the wall elsewhere."""
    return Clock(device) if device.type == "cuda" else WallClock()


def _difference_us(graph: torch.cuda.CUDAGraph, lesser: torch.cuda.CUDAGraph) -> float:
    """How much longer a replay of the first graph takes: medians of replays in turns."""
    _replay_for(graph, _WARM_UP_S)
    wholes, parts = [], []
    for _ in range(_REPLAYS):
        parts.append(_replay_us(lesser))
        wholes.append(_replay_us(graph))
    return max(statistics.median(wholes) - statistics.median(parts), _LEAST_US)


def _replay_for(graph: torch.cuda.CUDAGraph, seconds: float) -> None:
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        graph.replay()
        torch.cuda.synchronize()


def _replay_us(graph: torch.cuda.CUDAGraph) -> float:
    started = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    ended = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    started.record()
    graph.replay()
    ended.record()
    ended.synchronize()
    return 1e3 * float(started.elapsed_time(ended))  # the events say milliseconds
