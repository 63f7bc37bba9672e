"""Memory for packed weights: few large blocks in huge pages, where the system has them.

A step reads all weights once. In pages of 4 KiB a processor spends much of that time on address translation: on a
virtual machine with two cores of an AMD EPYC, rows of 576 x 3072 products read 20 GB/s from them and 32 GB/s from huge
pages.

Knows no files: packed_weights_files.py writes a PrivateMemory into a file and hands out a file's tensors in the same
order.
"""

import mmap
from dataclasses import dataclass
from typing import Protocol

import torch

HUGE_PAGE_BYTES = 2 << 20
#: Bytes of address space, which cost nothing: memory is taken when it is written. The last huge page of a block is in
#: memory as a whole, so there should be few blocks.
_BLOCK_BYTES = 512 << 20
_ALIGNMENT = 64  #: a cache line


class WeightMemory(Protocol):
    """Where operators keep their packed weights: tensors are handed out one after another."""

    @property
    def is_filled(self) -> bool:
        """Whether the tensors hold packed weights already. Then they must be requested in the order in which they were
        written, need no packing, and must not be written to."""
        ...

    def empty(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """The next tensor, [num_elements]; its content is undefined unless the memory is filled. The memory lives as
        long as its tensors."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Where a tensor lies in its block, in bytes."""

    block: int
    first: int
    num_bytes: int


class PrivateMemory:
    """Memory of this process alone, from anonymous mappings. Pages become resident when they are written."""

    is_filled = False

    def __init__(self, block_bytes: int = _BLOCK_BYTES) -> None:
        """block_bytes: of address space in a block, unless a tensor is larger."""
        self._block_bytes = block_bytes
        self._blocks: list[torch.Tensor] = []
        self._next = 0  #: first free byte of the last block
        self.spans: list[Span] = []  #: of all tensors, in order

    def empty(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """The next tensor, [num_elements], at the beginning of a cache line; its content is undefined."""
        num_bytes = num_elements * dtype.itemsize
        if not self._blocks or self._next + num_bytes > len(self._blocks[-1]):
            self._blocks.append(huge_block(max(_whole_pages(num_bytes), self._block_bytes)))
            self._next = 0
        span = Span(len(self._blocks) - 1, self._next, num_bytes)
        self.spans.append(span)
        self._next += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return self._blocks[-1][span.first : span.first + num_bytes].view(dtype)

    @property
    def contents(self) -> list[torch.Tensor]:
        """[bytes] of each block, up to the last huge page that holds a tensor."""
        ends = [0] * len(self._blocks)
        for span in self.spans:
            ends[span.block] = _whole_pages(span.first + span.num_bytes)
        return [block[:end] for block, end in zip(self._blocks, ends, strict=True)]


def _whole_pages(num_bytes: int) -> int:
    """num_bytes rounded up to whole huge pages."""
    return -(-num_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


#: Without a reservation: address space that is not written counts against no limit of memory.
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


def huge_block(num_bytes: int) -> torch.Tensor:
    """[num_bytes] uint8 that begin with a huge page; zeros until written."""
    # Private: shared memory, which is Python's default, gets no huge pages unless the whole system is set to that.
    memory = mmap.mmap(-1, num_bytes + HUGE_PAGE_BYTES, flags=_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    block = torch.frombuffer(memory, dtype=torch.uint8)
    first = -block.data_ptr() % HUGE_PAGE_BYTES
    return block[first : first + num_bytes]
