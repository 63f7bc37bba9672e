"""How many streaming multiprocessors a device has: grids and workspaces are made for them. Knows only torch."""

from functools import cache

import torch

#: Assumed for CPU, where tests run: the cores of a small one.
_UNKNOWN = 4


@cache
def num_multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of a CUDA device; a small number for CPU."""
    if device.type != "cuda":
        return _UNKNOWN
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
