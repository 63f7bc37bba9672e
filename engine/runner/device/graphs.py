"""Decode steps as CUDA graphs: one for each bucket, captured when a model is loaded, replayed with one call.

A graph repeats the launches of one run on the same addresses: what varies between steps must lie in buffers, and
nothing may wait for the device or take memory that is given back. All graphs share one memory pool.
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


class Recorder(Protocol):
    def record(self, program: Callable[[], None]) -> Replay:
        """Run a program and keep what it did. The result does the same again to the same addresses."""
        ...


class CudaRecorder:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, program: Callable[[], None]) -> Replay:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP_RUNS):
                program()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads of a server may talk to the device meanwhile; what they do is not part of the graph.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            program()
        return _CudaReplay(graph, program)


class _CudaReplay:
    """Keeps the program, and with it every tensor that the graph reads and that was not taken from its pool."""

    def __init__(self, graph: torch.cuda.CUDAGraph, program: Callable[[], None]) -> None:
        self._graph = graph
        self._program = program

    def __call__(self) -> None:
        self._graph.replay()


class DecodeGraphs:
    def __init__(self, buckets: Buckets, record: Callable[[Bucket], Replay]) -> None:
        """Records every bucket once."""
        self._buckets = buckets
        self._replays: dict[Bucket, Replay] = {}
        started = time.perf_counter()
        order = buckets.all()
        for count, bucket in enumerate(order, start=1):
            self._replays[bucket] = record(bucket)
            _log.info(
                "captured graph %d of %d: %d rows, contexts up to %d%s, %.1f s so far",
                count,
                len(order),
                bucket.num_rows,
                bucket.max_context,
                ", behind shared prefixes" if bucket.is_shared else "",
                time.perf_counter() - started,
            )

    def find(self, num_rows: int, context: int, *, is_shared: bool) -> tuple[Bucket, Replay] | None:
        """The graph that a step of that many rows, the longest of which has that context, can be padded to. is_shared:
        of rows that share prefixes."""
        bucket = self._buckets.bucket_for(num_rows, context, is_shared=is_shared)
        return None if bucket is None else (bucket, self._replays[bucket])
