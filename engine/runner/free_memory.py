"""Free memory of the machine or device, as far as this process may use it."""

from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
#: Assumed where the system does not tell (no Linux): a small machine.
_UNKNOWN_FREE_BYTES = 4 * 2**30


def free_memory_bytes(device: torch.device) -> int:
    """Bytes that a new allocation on the device may take, within the limit of the container."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = _available_bytes()
    limit, used = _cgroup_bytes("memory.max"), _cgroup_bytes("memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def _available_bytes() -> int:
    if not _MEMINFO.is_file():
        return _UNKNOWN_FREE_BYTES
    fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def _cgroup_bytes(name: str) -> int | None:
    file = _CGROUP / name
    text = file.read_text().strip() if file.is_file() else "max"
    return int(text) if text.isdigit() else None
