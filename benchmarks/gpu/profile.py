"""Which kernels a step consists of, and how long each takes: by torch's profiler, over several steps in a row.

On a CUDA device these are the kernels and copies of the device, those inside graphs included; on a CPU torch's
operators, without the time of operators that they call.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.bounds import KernelClass

#: The first pattern that is found in a kernel's name says its class. Triton's kernels have the names of their functions
#: in engine/kernels/gpu; cuBLAS's begin with nvjet, sm90_xmma_gemm or cutlass.
_CLASSES: tuple[tuple[KernelClass, str], ...] = (
    ("storing", r"store_heads"),
    ("attention", r"attend|attention|merge_states|softmax|bmm"),
    ("norms", r"norm"),
    ("activations", r"activate|silu|gelu"),
    ("sampling", r"draw|scan_spans|sample|logprobs|penalise|biases|argmax"),
    ("products", r"gemm|gemv|cutlass|xmma|nvjet|splitk|cublas|product|_linear_|aten::(add)?mm$"),
)


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel in one step: how often it ran and how long all of that took, on average over the steps."""

    name: str
    kernel_class: KernelClass | Literal["other"]
    launches: float
    us: float


def class_of(name: str) -> KernelClass | Literal["other"]:
    """The class of kernels whose bound (bounds.py) the kernel of that name counts against."""
    return next((found for found, pattern in _CLASSES if re.search(pattern, name, re.IGNORECASE)), "other")


def profile_steps(step: Callable[[], object], num_steps: int, device: str) -> list[KernelTime]:
    """Run the step so often, and wait for the device. Returns what ran, the longest first."""
    is_cuda = device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU]) as profiler:
        for _ in range(num_steps):
            step()
        if is_cuda:
            torch.cuda.synchronize()
    wanted = torch.autograd.DeviceType.CUDA if is_cuda else torch.autograd.DeviceType.CPU
    found = []
    for event in profiler.key_averages():
        us = event.self_device_time_total if is_cuda else event.self_cpu_time_total
        if event.device_type == wanted and us > 0:
            per_step = round(event.count / num_steps, 2), round(us / num_steps, 2)
            found.append(KernelTime(event.key, class_of(event.key), *per_step))
    return sorted(found, key=lambda kernel: -kernel.us)
