"""How much of a device's memory is left for pages: the memory of steps and graphs is measured, not guessed.

Before the page pool is allocated, the largest step runs once over a pool of two large pages, and two of the graphs are
captured over it; then all of that is freed. Memory that libraries keep outside torch from their first use on (code of
kernels, buffers of NCCL) is not freed, and is counted with the steps. Figures of the device come from a MemoryGauge.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from engine.errors import CheckpointError
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.graphs import GraphRecorder

_log = logging.getLogger(__name__)

#: A graph is counted with this at least, even if less was measured: the driver allocates in units of this size.
_LEAST_GRAPH_BYTES = 2 * 2**20
#: Largest share of the device that may be used. The rest, 1.25 of 80 GiB, is for fragmentation: pieces that torch keeps
#: and cannot use count as free here.
_LARGEST_SHARE = 63 / 64
_MIB = 2**20


class MemoryGauge(Protocol):
    """Measures the memory of one device. CudaGauge in the product; tests invent a device."""

    @property
    def total_bytes(self) -> int:
        """The device's memory."""
        ...

    def free_bytes(self) -> int:
        """Memory that no process uses, after torch's cache of this process has been emptied."""
        ...

    def used_bytes(self) -> int:
        """Memory of this process's tensors."""
        ...

    def reset_peak(self) -> None:
        """Begin a new measurement of peak_bytes."""
        ...

    def peak_bytes(self) -> int:
        """The largest used_bytes since the reset."""
        ...


class CudaGauge:
    """The MemoryGauge of a CUDA device, from torch's own statistics and the driver's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def total_bytes(self) -> int:
        """The device's memory."""
        return int(torch.cuda.mem_get_info(self._device)[1])

    def free_bytes(self) -> int:
        """Memory that no process uses; waits for the device and empties torch's cache."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._device)[0])

    def used_bytes(self) -> int:
        """Memory of this process's tensors."""
        return int(torch.cuda.memory_allocated(self._device))

    def reset_peak(self) -> None:
        """Begin a new measurement of peak_bytes."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        """The largest used_bytes since the reset."""
        return int(torch.cuda.max_memory_allocated(self._device))


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """What was measured before the page pool is allocated; made by profile_memory."""

    total_bytes: int
    free_bytes: int  #: with the weights loaded, before any step
    #: Largest need of a step beside weights and pages, with the buffers of all steps and what libraries keep.
    step_bytes: int
    graph_bytes: int  #: of all graphs together

    def room_bytes(self, share: float) -> int:
        """Memory for pages, if all processes together may take that share of the device. Raises CheckpointError if none
        is left."""
        kept_free = self.total_bytes - int(self.total_bytes * min(share, _LARGEST_SHARE))
        room = self.free_bytes - kept_free - self.step_bytes - self.graph_bytes
        if room <= 0:
            raise CheckpointError(
                f"no device memory is left for pages: of {self.total_bytes // _MIB} MiB {self.free_bytes // _MIB} are "
                f"free, steps need {self.step_bytes // _MIB} and graphs {self.graph_bytes // _MIB}, and "
                f"{kept_free // _MIB} stay free; lower max_batched_tokens, max_running or max_model_len"
            )
        _log.info(
            "device memory of %d MiB: %d free with the weights loaded, of which steps need %d, graphs %d, "
            "%d stay free, and %d are for pages",
            *(number // _MIB for number in (self.total_bytes, self.free_bytes, self.step_bytes, self.graph_bytes)),
            kept_free // _MIB,
            room // _MIB,
        )
        return room


def profile_memory(
    gauge: MemoryGauge,
    make_runner: Callable[[], DeviceRunner],
    *,
    num_tokens: int,
    recorder: GraphRecorder | None,
) -> MemoryProfile:
    """Measure steps and graphs. make_runner: builds a runner over the smallest pool; it is closed afterwards.
    num_tokens: of the largest step. recorder: None: there are no graphs."""
    free, used = gauge.free_bytes(), gauge.used_bytes()
    gauge.reset_peak()
    runner = make_runner()
    runner.warm_up(num_tokens)
    step_bytes = gauge.peak_bytes() - used - runner.pool_plan.pool_bytes
    free_now = gauge.free_bytes()
    library_bytes = free - free_now - (gauge.used_bytes() - used)
    graph_bytes = _graph_bytes(gauge, free_now, runner, recorder) if recorder is not None else 0
    runner.close()
    return MemoryProfile(gauge.total_bytes, free, max(0, step_bytes) + max(0, library_bytes), graph_bytes)


def _graph_bytes(gauge: MemoryGauge, free: int, runner: DeviceRunner, recorder: GraphRecorder) -> int:
    """Memory of all graphs, from the first two of each kind: the first one takes memory that all others reuse, and each
    takes a little of its own. free: bytes before them."""
    decodes, prompts = runner.decode_graphs, runner.prompt_graphs
    buckets = decodes.buckets.all()
    records: list[tuple[int, list[Callable[[], object]]]] = [
        (len(buckets), [partial(decodes.record, bucket, recorder) for bucket in buckets[:2]])
    ]
    if prompts is not None:
        largest = prompts.counts[:-3:-1]
        records.append((len(prompts.counts), [partial(prompts.record, count, recorder) for count in largest]))
    recorded, num_bytes = [], 0  # what is recorded stays until all is measured
    for count, kind in records:
        each = []
        for record in kind:
            recorded.append(record())
            before, free = free, gauge.free_bytes()
            each.append(max(_LEAST_GRAPH_BYTES, before - free))
        if each:
            num_bytes += each[0] + each[-1] * (count - 1)
    return num_bytes
