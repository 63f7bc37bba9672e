"""Decode steps as CUDA graphs: one for each bucket, captured when a model is loaded, replayed with one call.

A graph repeats the launches of one run on the same addresses. So whatever varies between steps lies in buffers, and the
captured program neither waits for the device nor frees memory outside the graphs' pool. All graphs share one pool.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol

import torch

from engine.runner.device.buckets import Bucket, Buckets

_log = logging.getLogger(__name__)

Replay = Callable[[], None]

#: Runs before a capture: the first compiles kernels and takes workspaces, which is forbidden while capturing.
_WARM_UP_RUNS = 2


class GraphRecorder(Protocol):
    """Turns programs into graphs. CudaGraphRecorder in the product; tests record on a tape."""

    def record(self, program: Callable[[], None]) -> Replay:
        """Run a program and keep its launches. The result repeats them on the same addresses."""
        ...


class CudaGraphRecorder:
    """Captures CUDA graphs on a stream of its own. Its graphs share a memory pool, freed with the last of them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, program: Callable[[], None]) -> Replay:
        """Run the program to warm it up, then capture it. The program must stay valid as long as the replay."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP_RUNS):
                program()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads of a server may use the device meanwhile; what they do is not part of the graph.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            program()
        return _CudaReplay(graph, program)


class _CudaReplay:
    """Keeps the program, and with it every tensor outside the pool that the graph reads."""

    def __init__(self, graph: torch.cuda.CUDAGraph, program: Callable[[], None]) -> None:
        self._graph = graph
        self._program = program

    def __call__(self) -> None:
        self._graph.replay()


class DecodeGraphs:
    """The captured graphs, by bucket."""

    def __init__(self, buckets: Buckets, record: Callable[[Bucket], Replay]) -> None:
        """Records every bucket once, and logs the progress."""
        self._buckets = buckets
        self._replays: dict[Bucket, Replay] = {}
        started = time.perf_counter()
        order = buckets.all()
        for count, bucket in enumerate(order, start=1):
            self._replays[bucket] = record(bucket)
            _log.info(
                "captured graph %d of %d: %d rows%s, %.1f s so far",
                count,
                len(order),
                bucket.num_rows,
                ", behind shared prefixes" if bucket.is_shared else "",
                time.perf_counter() - started,
            )

    def find(self, num_rows: int, *, is_shared: bool) -> tuple[Bucket, Replay] | None:
        """The graph for a step of num_rows rows; None: there is none. is_shared: a graph that reads shared prefixes
        once."""
        bucket = self._buckets.bucket_for(num_rows, is_shared=is_shared)
        return None if bucket is None else (bucket, self._replays[bucket])
