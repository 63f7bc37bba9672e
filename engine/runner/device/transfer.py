"""What a step sends to the device and what comes back: one copy each way, neither of which makes the host wait.

Host memory of both is page-locked on CUDA, so that the device copies by itself, and it is not written again before the
device has read it. On CPU the same code copies from memory to memory. Knows arrays, and nothing of what they mean.
"""

import time
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.generic]

#: Sections begin at multiples of this, for 128-bit loads.
_ALIGNMENT = 16
#: What arrays may consist of.
_TORCH_KINDS = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
}


class Fence:
    """A place in the device's queue of work that the host can wait for."""

    def __init__(self, device: torch.device) -> None:
        self._event = _event(device)

    def mark(self) -> None:
        """Behind everything that has been started so far."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Until the device has come to the mark; at once where there is none yet."""
        if self._event is not None:
            self._event.synchronize()


class StepClock:
    """How long the device takes from start to stop. May be read once the device is behind the stop."""

    def __init__(self, device: torch.device) -> None:
        self._first, self._last = _event(device, has_time=True), _event(device, has_time=True)
        self._started = self._stopped = 0.0

    def start(self) -> None:
        if self._first is not None:
            self._first.record()
        self._started = time.perf_counter()

    def stop(self) -> None:
        if self._last is not None:
            self._last.record()
        self._stopped = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        if self._first is None or self._last is None:
            return self._stopped - self._started
        return float(self._first.elapsed_time(self._last)) / 1000.0  # the events say milliseconds


class Upload:
    """All that one step needs from the host, in one copy.

    First come columns of a fixed place, one number for each row of a decode step: graphs read them, so their address on
    the device never changes. Behind them comes what has another size in every step.
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
        #: by column [num_rows]: what was sent last.
        self.columns = {
            name: self._device_view(self._offsets[name], num_rows, np.dtype(kind)) for name, kind in columns.items()
        }

    def begin(self) -> None:
        """Start to write; waits until the device has read what the step before the last one wrote here."""
        self._which = 1 - self._which
        self._fences[self._which].wait()
        self._used = self._fixed_bytes

    def column(self, name: str) -> Array:
        """The host's side of a column, to be written before `send`."""
        return self._columns[name][self._which]

    def put(self, array: Array) -> torch.Tensor:
        """Send an array along. Returns where it will be on the device, until the next step."""
        first, end = self._used, self._used + array.nbytes
        if end > len(self._device_bytes):
            return self._send_alone(array)
        self._host_view(self._which, first, array.size, array.dtype)[:] = array
        self._used = _aligned(end)
        return self._device_view(first, array.size, array.dtype)

    def send(self) -> None:
        host = self._hosts[self._which]
        self._device_bytes[: self._used].copy_(host[: self._used], non_blocking=True)
        self._fences[self._which].mark()

    def _send_alone(self, array: Array) -> torch.Tensor:
        """What finds no room goes by itself, from memory that torch keeps until the device has read it."""
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
    """What one step has computed, on its way to the host."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._memory = host_memory(num_bytes, torch.uint8, device)
        self._arrays: list[Array] = []
        self._fence = Fence(device)

    def start(self, *tensors: torch.Tensor) -> None:
        """One copy for each, contiguous; all together no more than there is room for."""
        self._arrays, first = [], 0
        for tensor in tensors:
            memory = self._memory[first : first + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            memory.copy_(tensor, non_blocking=True)
            self._arrays.append(memory.numpy())
            first = _aligned(first + tensor.nbytes)
        self._fence.mark()

    def wait(self) -> list[Array]:
        """All of it, once it is here; valid until the next start."""
        self._fence.wait()
        return self._arrays


def _event(device: torch.device, *, has_time: bool = False) -> torch.cuda.Event | None:
    if device.type != "cuda":
        return None
    return torch.cuda.Event(enable_timing=has_time)


def host_memory(count: int, kind: torch.dtype, device: torch.device) -> torch.Tensor:
    """That the device reaches by itself; zeros, so that no step reads what nobody wrote."""
    return torch.zeros(count, dtype=kind, pin_memory=device.type == "cuda")


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
