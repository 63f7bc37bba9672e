"""Microseconds of one call on a CUDA device, as it runs in a captured step: replays of a graph, cold cache."""

import statistics
from collections.abc import Callable

import torch

_CALLS = 10  #: in one graph
_REPLAYS = 20
#: Five times the second-level cache of an H200 is overwritten before every call: what a call reads lies in memory.
_FLUSH_BYTES = 256 * 2**20


class Clock:
    """Measures a call with the flush before it, and takes off the flush alone."""

    def __init__(self, device: torch.device) -> None:
        self._junk = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device=device)
        self._flush_us = self._replay(None)

    def microseconds(self, call: Callable[[], object]) -> float:
        return max(self._replay(call) - self._flush_us, 0.0)

    def _replay(self, call: Callable[[], object] | None) -> float:
        if call is not None:
            call()  # compiles what is compiled on first use
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_CALLS):
                self._junk.zero_()
                if call is not None:
                    call()
        for _ in range(3):
            graph.replay()
        times = []
        for _ in range(_REPLAYS):
            started = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            ended = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            started.record()
            graph.replay()
            ended.record()
            ended.synchronize()
            times.append(1e3 * float(started.elapsed_time(ended)) / _CALLS)
        return statistics.median(times)
