"""Programmatic dependent launch: programs of a kernel are placed on the device while the kernel before it runs, and
wait there for its results. From compute capability 9.0 on; elsewhere kernels are what they are without it.

A kernel that is launched so waits before it reads or writes memory, in all of its programs. So everything before it is
complete then, and nothing else changes: a kernel may follow any other, and any other may follow it.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

#: Compute capability that has it.
_LEAST_ARCHITECTURE = 90


@triton.jit
def wait_for_previous(WAITS: tl.constexpr):
    """To be called first. Waits for the kernel before this one, and lets the one behind it be placed."""
    if WAITS:
        gdc_wait()
        gdc_launch_dependents()


def launch_options(device: torch.device) -> dict[str, bool]:
    """Arguments of a launch whose kernel calls wait_for_previous: WAITS, and Triton's own option."""
    return _options(device)


@cache
def _options(device: torch.device) -> dict[str, bool]:
    if device.type != "cuda":
        return {"WAITS": False}
    major, minor = torch.cuda.get_device_capability(device)
    return options_for(10 * major + minor)


def options_for(architecture: int) -> dict[str, bool]:
    """The same by architecture: 80, 89, 90 and so on."""
    return {"WAITS": True, "launch_pdl": True} if architecture >= _LEAST_ARCHITECTURE else {"WAITS": False}
