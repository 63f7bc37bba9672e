"""Upload and download of a step: one copy each way, and the host waits for neither.

On CUDA the host memory of both is page-locked, so that the device copies asynchronously; it is not written again before
the device has read it. On CPU the same code copies from memory to memory. Knows arrays, not their meaning.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.generic]

#: Sections begin at multiples of this, for 128-bit loads.
_ALIGNMENT = 16
#: Types of the arrays that can be sent.
_TORCH_KINDS = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
}


class Fence:
    """A point in the device's queue of work that the host can wait for: a CUDA event. On CPU, nothing."""

    def __init__(self, device: torch.device) -> None:
        self._event = _event(device)

    def mark(self) -> None:
        """Set the point after all work that has been queued so far."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Wait until the device has reached the mark; returns at once if there is none yet."""
        if self._event is not None:
            self._event.synchronize()


class StepClock:
    """Measures how long the device takes from `start` to `stop`, in its own time."""

    def __init__(self, device: torch.device) -> None:
        self._first, self._last = _event(device, has_time=True), _event(device, has_time=True)
        self._started = self._stopped = 0.0

    def start(self) -> None:
        """Queue the beginning of the measurement."""
        if self._first is not None:
            self._first.record()
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Queue the end of the measurement."""
        if self._last is not None:
            self._last.record()
        self._stopped = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds; may be read only when the device has passed the stop."""
        if self._first is None or self._last is None:
            return self._stopped - self._started
        return float(self._first.elapsed_time(self._last)) / 1000.0  # events return milliseconds


class Upload:
    """All inputs of one step, sent in one copy.

    First come columns at fixed addresses, one number for each row of a decode step: graphs read them, so their address
    on the device never changes. After them come arrays whose size varies from step to step.
    """

    def __init__(self, columns: Mapping[str, type[np.generic]], num_rows: int, extra_bytes: int, device: torch.device):
        self._offsets: dict[str, int] = {}
        end = 0
        for name, kind in columns.items():
            self._offsets[name] = end
            end = _aligned(end + num_rows * np.dtype(kind).itemsize)
        self._fixed_bytes = end
        num_bytes = end + _aligned(extra_bytes)
        self._device_bytes = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        self._hosts = [host_memory(num_bytes, torch.uint8, device) for _ in range(2)]
        self._host_arrays = [memory.numpy() for memory in self._hosts]
        self._fences = [Fence(device) for _ in range(2)]
        self._which = 0
        self._used = end
        self._columns = {
            name: [self._host_view(which, self._offsets[name], num_rows, np.dtype(kind)) for which in range(2)]
            for name, kind in columns.items()
        }
        #: on the device, by column [num_rows]: what was sent last
        self.columns = {
            name: self._device_view(self._offsets[name], num_rows, np.dtype(kind)) for name, kind in columns.items()
        }

    def begin(self) -> None:
        """Begin a step's upload, in the other one of two host buffers. Waits until the device has read that buffer's
        previous content, of the step before the last one."""
        self._which = 1 - self._which
        self._fences[self._which].wait()
        self._used = self._fixed_bytes

    def column(self, name: str) -> Array:
        """The host's copy of a column, to be written between `begin` and `send`."""
        return self._columns[name][self._which]

    def put(self, array: Array) -> torch.Tensor:
        """Add an array. Returns the tensor that holds it on the device after `send`, valid until the next step."""
        first, end = self._used, self._used + array.nbytes
        if end > len(self._device_bytes):
            return self._send_alone(array)
        self._host_view(self._which, first, array.size, array.dtype)[:] = array
        self._used = _aligned(end)
        return self._device_view(first, array.size, array.dtype)

    def send(self) -> None:
        """Queue the copy to the device."""
        host = self._hosts[self._which]
        self._device_bytes[: self._used].copy_(host[: self._used], non_blocking=True)
        self._fences[self._which].mark()

    def _send_alone(self, array: Array) -> torch.Tensor:
        """An array that does not fit is sent in a copy of its own, from memory that torch keeps until the device has
        read it."""
        source = torch.from_numpy(np.ascontiguousarray(array))
        memory = host_memory(array.size, source.dtype, self._device_bytes.device)
        memory.copy_(source)
        return memory.to(self._device_bytes.device, non_blocking=True)

    def _host_view(self, which: int, first: int, count: int, kind: np.dtype[np.generic]) -> Array:
        array: Array = self._host_arrays[which][first : first + count * kind.itemsize].view(kind)
        return array

    def _device_view(self, first: int, count: int, kind: np.dtype[np.generic]) -> torch.Tensor:
        return self._device_bytes[first : first + count * kind.itemsize].view(_TORCH_KINDS[kind])


class Download:
    """The results of one step, on their way to the host."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._memory = host_memory(num_bytes, torch.uint8, device)
        self._arrays: list[Array] = []
        self._fence = Fence(device)

    @classmethod
    def for_tensors(cls, tensors: Sequence[torch.Tensor], device: torch.device) -> "Download":
        """One that is large enough for these tensors."""
        return cls(sum(_aligned(tensor.nbytes) for tensor in tensors), device)

    def start(self, *tensors: torch.Tensor) -> None:
        """Queue one copy for each tensor, all contiguous; together they must fit into num_bytes."""
        self._arrays, first = [], 0
        for tensor in tensors:
            memory = self._memory[first : first + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            memory.copy_(tensor, non_blocking=True)
            self._arrays.append(memory.numpy())
            first = _aligned(first + tensor.nbytes)
        self._fence.mark()

    def wait(self) -> list[Array]:
        """Wait for the results; the arrays are valid until the next `start`."""
        self._fence.wait()
        return self._arrays


def _event(device: torch.device, *, has_time: bool = False) -> torch.cuda.Event | None:
    if device.type != "cuda":
        return None
    return torch.cuda.Event(enable_timing=has_time)


def host_memory(count: int, kind: torch.dtype, device: torch.device) -> torch.Tensor:
    """Host memory that the device can copy asynchronously: page-locked on CUDA. Zeros."""
    return torch.zeros(count, dtype=kind, pin_memory=device.type == "cuda")


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
