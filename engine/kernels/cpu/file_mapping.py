"""Maps a file as read-only memory that begins at a huge page, and tells how much of it lies in huge pages. Linux.

Pages of a file are huge if its file system keeps large folios (XFS, Btrfs, ext4 from Linux 6.16) and was written in
whole ones, or if the kernel collapses them on request. Reading weights is then as fast as from private huge pages (192
MiB, one core of an AMD EPYC virtual machine: 28 to 31 GB/s from both, 22 to 26 GB/s from pages of 4 KiB).
"""

import contextlib
import ctypes
import mmap
from pathlib import Path

import torch

from engine.kernels.cpu.weight_memory import HUGE_PAGE_BYTES

_MAP_FIXED = 0x10
_MADV_POPULATE_READ = 22  #: Linux 5.14
_MADV_COLLAPSE = 25  #: Linux 6.1; refused for files unless the kernel has READ_ONLY_THP_FOR_FS
_ENOUGH = 0.9


def map_file(file: int, offset: int, num_bytes: int) -> torch.Tensor:
    """[num_bytes] uint8: the content of an open file from `offset` on, a multiple of a huge page. Resident; must not be
    written to. Processes that map the same file share the memory. Raises OSError.
    """
    # An address range that is large enough to begin at a huge page; the file is then mapped over its inner part.
    room = mmap.mmap(-1, num_bytes + 2 * HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = torch.frombuffer(room, dtype=torch.uint8)  # keeps the range, which is unmapped with the last tensor
    first = -whole.data_ptr() % HUGE_PAGE_BYTES
    _map_over(whole.data_ptr() + first, num_bytes, file, offset)
    rounded = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    for advice in (mmap.MADV_HUGEPAGE, _MADV_POPULATE_READ):
        _advise(room, advice, first, rounded)
    memory = whole[first : first + num_bytes]
    if huge_share(memory) < _ENOUGH:
        _advise(room, _MADV_COLLAPSE, first, rounded // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES)
    return memory


def is_huge(memory: torch.Tensor) -> bool:
    """Whether at least 90 % of a mapped file lies in huge pages."""
    return huge_share(memory) >= _ENOUGH


def huge_share(memory: torch.Tensor) -> float:
    """Share of a mapped file's possible huge pages that are huge, from /proc/self/smaps; 0 to 1."""
    begin, num_bytes = memory.data_ptr(), len(memory) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    found, is_inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            low, high = (int(address, 16) for address in name.split("-"))
            is_inside = begin <= low and high <= begin + len(memory) + mmap.PAGESIZE
        elif is_inside and name in ("FilePmdMapped:", "ShmemPmdMapped:"):
            found += int(rest[0]) * 1024
    return found / num_bytes if num_bytes else 0.0


def _advise(room: mmap.mmap, advice: int, first: int, num_bytes: int) -> None:
    with contextlib.suppress(OSError):  # an older kernel does not know the advice: the pages stay as they are
        room.madvise(advice, first, num_bytes)


def _map_over(address: int, num_bytes: int, file: int, offset: int) -> None:
    """Map the file at this address. Called in the C library, since Python's own mmap takes no address."""
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    system.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_int64)
    got = system.mmap(address, num_bytes, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, file, offset)
    if got != address:
        raise OSError(ctypes.get_errno(), "mmap")
