"""How much of a device's memory is left for pages: what steps and graphs need is measured, not guessed.

Before the page pool is made, the largest step is run once over a pool of two large pages, and two of the graphs are
captured over it; then all of that is given back. What libraries keep from their first use on, outside torch (code of
kernels, buffers of NCCL), is not given back and counts as well. Knows sizes only; the numbers come from a gauge.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch

from engine.errors import CheckpointError
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.graphs import Recorder

_log = logging.getLogger(__name__)

#: A graph takes that much at least, however little memory it showed: the driver hands it out in such parts.
_LEAST_GRAPH_BYTES = 2 * 2**20
#: Memory that torch keeps in pieces which fit nothing counts as free here, and is not. Of 80 GiB it is 1.25 GiB.
_LARGEST_SHARE = 63 / 64
_MIB = 2**20


class MemoryGauge(Protocol):
    @property
    def total_bytes(self) -> int: ...

    def free_bytes(self) -> int:
        """That no process uses, once what this one only keeps for later has been given back."""
        ...

    def used_bytes(self) -> int:
        """Of tensors of this process."""
        ...

    def reset_peak(self) -> None: ...

    def peak_bytes(self) -> int:
        """Most of used_bytes since the reset."""
        ...


class CudaGauge:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def total_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self._device)[1])

    def free_bytes(self) -> int:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._device)[0])

    def used_bytes(self) -> int:
        return int(torch.cuda.memory_allocated(self._device))

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        return int(torch.cuda.max_memory_allocated(self._device))


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    total_bytes: int
    free_bytes: int  #: with the weights loaded, before any step
    #: Most that a step takes beside weights and pages, the buffers of all steps, and what libraries keep.
    step_bytes: int
    graph_bytes: int  #: of all graphs together

    def room_bytes(self, share: float) -> int:
        """For pages, where everything together, other processes included, may take that share of the device."""
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
    recorder: Recorder | None,
) -> MemoryProfile:
    """make_runner: over the smallest pool there is. num_tokens: of the largest step. recorder: None for no graphs."""
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


def _graph_bytes(gauge: MemoryGauge, free: int, runner: DeviceRunner, recorder: Recorder) -> int:
    """The first graph takes memory that all others use again, and every one a little of its own. free: before them."""
    buckets = runner.buckets.all()
    frees = [free]
    replays = []  # alive until both are measured
    for bucket in buckets[:2]:
        replays.append(runner.record(bucket, recorder))
        frees.append(gauge.free_bytes())
    each = [max(_LEAST_GRAPH_BYTES, before - after) for before, after in pairwise(frees)]
    return each[0] + each[-1] * (len(buckets) - 1)
