"""Seconds that a CUDA device takes for some work, without what the host takes to launch it: by replays of a graph."""

import statistics
from collections.abc import Callable
from itertools import pairwise

import torch

_REPLAYS = 7


class CudaTimer:
    """The WorkTimer of a CUDA device."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        """stream: of the device; the one of the recorder of graphs, because torch keeps a workspace of cuBLAS, 32 MiB
        on Hopper, for every stream that has multiplied."""
        self._device = device
        self._stream = stream

    def __call__(self, work: Callable[[], None]) -> float:
        """The median of a few replays of work, which must neither wait for the device nor read what it computes."""
        with torch.cuda.device(self._device):
            stream = self._stream
            stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(stream):
                work()  # compiles what is compiled on first use
            torch.cuda.synchronize(self._device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                work()
            graph.replay()
            events = [torch.cuda.Event(enable_timing=True) for _ in range(_REPLAYS + 1)]
            events[0].record()
            for event in events[1:]:
                graph.replay()
                event.record()
            torch.cuda.synchronize(self._device)
            milliseconds = [float(first.elapsed_time(second)) for first, second in pairwise(events)]
        return statistics.median(milliseconds) / 1e3
