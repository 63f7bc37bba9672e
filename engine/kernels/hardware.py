"""What tiles, grids, workspaces and launch options are chosen by: a device's architecture and how many streaming
multiprocessors it has. Knows only torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True, slots=True)
class Hardware:
    """The figures of a device."""

    architecture: int  #: compute capability as one number: 80, 89, 90 and so on; 0: a CPU
    num_multiprocessors: int


#: A CPU, where tests run; its number is that of a small one's cores.
_CPU = Hardware(0, 4)
_assumed: ContextVar[Hardware | None] = ContextVar("hardware assumed of CPUs", default=None)


@cache
def _architecture_of_cuda(device: torch.device) -> int:
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@cache
def _multiprocessors_of_cuda(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def architecture_of(device: torch.device) -> int:
    """80, 89, 90 and so on; 0 of a CPU."""
    return _architecture_of_cuda(device) if device.type == "cuda" else (_assumed.get() or _CPU).architecture


def num_multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of a CUDA device; a small number for CPU."""
    return _multiprocessors_of_cuda(device) if device.type == "cuda" else (_assumed.get() or _CPU).num_multiprocessors


@contextmanager
def assume(hardware: Hardware) -> Iterator[None]:
    """In this thread, choices for tensors on CPU are those of such a device: launches can be recorded without one."""
    token = _assumed.set(hardware)
    try:
        yield
    finally:
        _assumed.reset(token)
