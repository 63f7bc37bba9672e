"""CUDA graphs: launches that are captured when a model is loaded, and repeated with one call.

A graph repeats the launches of one run on the same addresses. So whatever varies between steps lies in buffers, and the
captured program neither waits for the device nor frees memory outside the graphs' pool. All graphs share one pool.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

Replay = Callable[[], None]

#: Runs before a capture: the first compiles kernels and takes workspaces, which is forbidden while capturing.
_WARM_UP_RUNS = 2


class GraphRecorder(Protocol):
    """Turns programs into graphs. CudaGraphRecorder in the product; tests record on a tape."""

    def record(self, program: Callable[[], None]) -> Replay:
        """Run a program and keep its launches. The result repeats them on the same addresses."""
        ...

    def record_pieces(self, program: Callable[[Callable[[], None]], None]) -> Sequence[Replay]:
        """As record, for a program that is given a function `cut` and calls it where a piece ends and the next one
        begins. Between two pieces anything may be launched."""
        ...

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory as a tensor that was made while recording, without keeping it from being reused
        by what is recorded later. It holds the tensor's values until the replay that reuses it."""
        ...


class CudaGraphRecorder:
    """Captures CUDA graphs. Those of a recorder share a memory pool, freed with the last of them."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        """stream: on which it captures; recorders of a device share one, as does the timer (cuda_timer.py)."""
        self._device = device
        self._stream = stream
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

    def record_pieces(self, program: Callable[[Callable[[], None]], None]) -> Sequence[Replay]:
        """As GraphRecorder.record_pieces."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP_RUNS):
                program(_no_cut)
        torch.cuda.synchronize(self._device)
        graphs: list[torch.cuda.CUDAGraph] = []

        def begin() -> None:  # torch.cuda.graph would collect garbage first, which takes longer than a piece
            graphs.append(torch.cuda.CUDAGraph())
            graphs[-1].capture_begin(self._pool, capture_error_mode="thread_local")

        def cut() -> None:
            graphs[-1].capture_end()
            begin()

        with torch.cuda.stream(self._stream):
            begin()
            try:
                program(cut)
            finally:
                graphs[-1].capture_end()
        return [_CudaReplay(graph, program) for graph in graphs]

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """As GraphRecorder.alias."""
        assert tensor.numel()
        num_elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        memory = _Memory(tensor.data_ptr(), num_elements * tensor.itemsize)
        return (
            torch.as_tensor(memory, device=tensor.device).view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
        )


def _no_cut() -> None:
    """A program that only warms up runs as a whole."""


class _Memory:
    """Bytes on a device, in the form that torch makes a tensor of without owning them."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class _CudaReplay:
    """Keeps the program, and with it every tensor outside the pool that the graph reads."""

    def __init__(self, graph: torch.cuda.CUDAGraph, program: Callable[..., None]) -> None:
        self._graph = graph
        self._program = program

    def __call__(self) -> None:
        self._graph.replay()
