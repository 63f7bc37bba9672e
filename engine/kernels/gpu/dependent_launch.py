"""Programmatic dependent launch: programs of a kernel are placed on the device while the kernel before it runs, and
wait there for its results. From compute capability 9.0 on; elsewhere kernels are what they are without it.

A kernel that is launched so waits before it reads or writes memory, in all of its programs. So everything before it is
complete then, and nothing else changes: a kernel may follow any other, and any other may follow it.

They can be turned off, to tell a fault of theirs from a fault of a kernel: by EngineConfig.dependent_launch, whose
runner calls `turn_off`, or for benchmarks and tests, which have no EngineConfig, by the variable. A launcher knows its
device and no engine, so this holds for all models of a process on that device.
"""

import os

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.kernels.hardware import architecture_of

#: Compute capability that has it.
_LEAST_ARCHITECTURE = 90
VARIABLE = "AGON_DEPENDENT_LAUNCH"  #: also the worker's variable of the engine setting
_NO = frozenset({"0", "false", "no", "off", "f", "n"})
_OFF = {"WAITS": False}
_options: dict[torch.device, dict[str, bool]] = {}  # of launches, by device


@triton.jit
def wait_for_previous(WAITS: tl.constexpr):
    """To be called first. Waits for the kernel before this one, and lets the one behind it be placed."""
    if WAITS:
        gdc_wait()
        gdc_launch_dependents()


def launch_options(device: torch.device) -> dict[str, bool]:
    """Arguments of a launch whose kernel calls wait_for_previous: WAITS, and Triton's own option."""
    options = _options.get(device)
    if options is None:
        options = _read_options(device)
        if device.type == "cuda":  # a CPU may stand for several devices
            _options[device] = options
    return options


def turn_off(device: torch.device) -> None:
    """From now on, launch no kernel of the device before the one before it has ended. Called before a model is served:
    graphs keep the launches that they have captured."""
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    _options[device] = dict(_OFF)


def _read_options(device: torch.device) -> dict[str, bool]:
    if os.environ.get(VARIABLE, "").lower() in _NO:
        return dict(_OFF)
    return options_for(architecture_of(device))


def options_for(architecture: int) -> dict[str, bool]:
    """The same by architecture: 80, 89, 90 and so on; 0: a CPU."""
    return {"WAITS": True, "launch_pdl": True} if architecture >= _LEAST_ARCHITECTURE else dict(_OFF)
