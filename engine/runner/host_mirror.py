"""The mirror of the page pool in host memory: moves whole small pages out of the pool and back. Owned by the runner.

memory/swap.py decides which page goes where; this module moves the bytes. The mirror has the pool's layout, so a small
page is a row in both.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import torch

from engine.attention.layout import small_pages
from engine.batch import PageMove
from engine.kernels.step_kernels import StepKernels
from engine.memory.spec import PoolPlan
from engine.runner.pool import zeroed_pool

#: Bytes of rows that are moved together: bounds the memory beside pool and mirror, and is enough to saturate a bus.
_STAGING_BYTES = 32 * 2**20


class HostMirror:
    """Small pages in host memory, by layer type, and their transfer from and to the pool."""

    def __init__(
        self,
        plan: PoolPlan,
        memory: torch.Tensor,
        pages: Mapping[str, torch.Tensor],
        kernels: StepKernels | None = None,
    ) -> None:
        """memory: plan.pool_bytes on the host. pages: the pool's small pages by layer type, as rows. kernels: of a
        device with its own memory, where pages are staged on both sides of the bus; None: the pool is in host memory
        too."""
        self.plan = plan
        self._pages = pages
        self._kernels = kernels
        self._mirror = {kind.name: small_pages(plan, kind, memory) for kind in plan.types}

    @classmethod
    def allocate(
        cls, plan: PoolPlan | None, pages: Mapping[str, torch.Tensor], kernels: StepKernels | None = None
    ) -> Self | None:
        """A mirror in newly allocated memory, with arguments as above; None if there is no plan."""
        if plan is None:
            return None
        return cls(plan, zeroed_pool(plan.pool_bytes, torch.device("cpu")), pages, kernels)

    def move(self, outs: Sequence[PageMove], ins: Sequence[PageMove]) -> float:
        """Move pages out of the pool, then pages into it. Returns the time in seconds. On CUDA it waits for the step in
        flight first, and that wait is not counted."""
        self._wait()
        started = time.perf_counter()
        for name, moves in _chunks(outs, self._mirror):
            rows = self._read(self._pages[name], moves)
            mirror = self._mirror[name]
            mirror.index_copy_(0, _ids((move.host_page for move in moves), mirror.device), rows)
        for name, moves in _chunks(ins, self._mirror):
            mirror = self._mirror[name]
            rows = _staging(len(moves), mirror, self._pages[name].is_cuda)
            torch.index_select(mirror, 0, _ids((move.host_page for move in moves), mirror.device), out=rows)
            self._write(self._pages[name], moves, rows)
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        for device in {pages.device for pages in self._pages.values() if pages.is_cuda}:
            torch.cuda.synchronize(device)  # named, since the thread's current device may be another one

    def _read(self, pages: torch.Tensor, moves: Sequence[PageMove]) -> torch.Tensor:
        """Copies of the pool's pages, in host memory."""
        page_ids = _ids((move.device_page for move in moves), pages.device)
        if self._kernels is None:
            return pages.index_select(0, page_ids)
        gathered = pages.new_empty(len(moves), pages.shape[1])
        self._kernels.gather_pages(pages, page_ids, gathered)
        return _staging(len(moves), pages, pages.is_cuda).copy_(gathered)

    def _write(self, pages: torch.Tensor, moves: Sequence[PageMove], rows: torch.Tensor) -> None:
        page_ids = _ids((move.device_page for move in moves), pages.device)
        if self._kernels is None:
            pages.index_copy_(0, page_ids, rows)
        else:
            self._kernels.scatter_pages(pages, page_ids, rows.to(pages.device))


def _chunks(moves: Sequence[PageMove], rows: Mapping[str, torch.Tensor]) -> list[tuple[str, list[PageMove]]]:
    """Moves by layer type, in runs of at most _STAGING_BYTES."""
    by_type: dict[str, list[PageMove]] = {}
    for move in moves:
        by_type.setdefault(move.layer_type, []).append(move)
    chunks = []
    for name, group in by_type.items():
        count = max(1, _STAGING_BYTES // (rows[name].shape[1] * rows[name].itemsize))
        chunks += [(name, group[start : start + count]) for start in range(0, len(group), count)]
    return chunks


def _ids(pages: Iterable[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(list(pages), device=device)


def _staging(num_rows: int, pages: torch.Tensor, is_pinned: bool) -> torch.Tensor:
    """Host memory for rows of pages. Pinned: a CUDA device can copy it by itself; torch caches it for the next call."""
    return torch.empty((num_rows, pages.shape[1]), dtype=pages.dtype, pin_memory=is_pinned)
