"""The limits of a step where the configuration leaves them to the device."""

from dataclasses import replace

import torch

from engine.config import EngineConfig, StepLimits
from engine.parallel.group import Group

_GIB = 2**30
#: Least memory in bytes of a CUDA device, and the limits that suit it, largest first. A step of many tokens and rows
#: keeps a large device busy; buffers of steps and graphs take memory from the pages of a small one.
_OF_CUDA = (
    (38 * _GIB, StepLimits(max_running=256, max_batched_tokens=8192)),
    (22 * _GIB, StepLimits(max_running=128, max_batched_tokens=4096)),
    (0, StepLimits(max_running=64, max_batched_tokens=2048)),
)


def limits_for(memory_bytes: int) -> StepLimits:
    """Limits of a step on a CUDA device with that much memory."""
    return next(limits for least, limits in _OF_CUDA if memory_bytes >= least)


def with_device_defaults(config: EngineConfig, device: torch.device, group: Group) -> EngineConfig:
    """The configuration with every limit of a step stated: those that are unset become the device's, the same in all
    processes of the group. On a CPU they are those of EngineConfig.step_limits."""
    limits = config.step_limits
    if device.type == "cuda":
        memory_bytes = group.minimum(torch.cuda.get_device_properties(device).total_memory)
        defaults = limits_for(memory_bytes)
        limits = StepLimits(
            config.max_running or defaults.max_running, config.max_batched_tokens or defaults.max_batched_tokens
        )
    return replace(config, max_running=limits.max_running, max_batched_tokens=limits.max_batched_tokens)
