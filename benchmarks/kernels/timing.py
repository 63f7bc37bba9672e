"""Microseconds of one call on a CUDA device, as it runs in a captured step: replays of a graph, cold cache."""

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
        self._flush = self._capture(None)
        _replay_for(self._flush, _WAKE_UP_S)

    def microseconds(self, call: Callable[[], object]) -> float:
        call()  # compiles what is compiled on first use
        graph = self._capture(call)
        _replay_for(graph, _WARM_UP_S)
        flushes, wholes = [], []
        for _ in range(_REPLAYS):
            flushes.append(_replay_us(self._flush))
            wholes.append(_replay_us(graph))
        return max((statistics.median(wholes) - statistics.median(flushes)) / _CALLS, _LEAST_US)

    def _capture(self, call: Callable[[], object] | None) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_CALLS):
                self._junk.zero_()
                if call is not None:
                    call()
        return graph


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
