"""The mirror of the page pool in host memory: moves whole small pages out of the pool and back. Owned by the runner.

Which page goes where is decided in memory/swap.py; here are the bytes. The same layout as the pool's, so a small page
is a row in both.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import torch

from engine.attention.layout import small_pages
from engine.batch import PageMove
from engine.memory.spec import PoolPlan

#: Rows that travel together: bounds what is needed beside pool and mirror, and is enough to fill any bus.
_STAGING_BYTES = 32 * 2**20


class HostMirror:
    def __init__(self, plan: PoolPlan, memory: torch.Tensor, pages: Mapping[str, torch.Tensor]) -> None:
        """memory: plan.pool_bytes on the host; pages: the pool's own small pages by layer type, as rows."""
        self.plan = plan
        self._pages = pages
        self._mirror = {kind.name: small_pages(plan, kind, memory) for kind in plan.types}

    def move(self, outs: Sequence[PageMove], ins: Sequence[PageMove]) -> float:
        """All that goes out, then all that comes in; returns how long it took, in seconds."""
        started = time.perf_counter()
        for name, moves in _chunks(outs, self._mirror):
            pages, mirror = self._pages[name], self._mirror[name]
            rows = pages.index_select(0, _ids((move.device_page for move in moves), pages.device))
            if pages.is_cuda:
                rows = _staging(rows.shape, rows.dtype).copy_(rows)
            mirror.index_copy_(0, _ids((move.host_page for move in moves), mirror.device), rows)
        for name, moves in _chunks(ins, self._mirror):
            pages, mirror = self._pages[name], self._mirror[name]
            host_ids = _ids((move.host_page for move in moves), mirror.device)
            if pages.is_cuda:
                staging = _staging(torch.Size((len(moves), mirror.shape[1])), mirror.dtype)
                rows = torch.index_select(mirror, 0, host_ids, out=staging).to(pages.device)
            else:
                rows = mirror.index_select(0, host_ids)
            pages.index_copy_(0, _ids((move.device_page for move in moves), pages.device), rows)
        if any(pages.is_cuda for pages in self._pages.values()):
            torch.cuda.synchronize()
        return time.perf_counter() - started


def _chunks(moves: Sequence[PageMove], rows: Mapping[str, torch.Tensor]) -> list[tuple[str, list[PageMove]]]:
    """Moves by layer type, in runs that the staging memory holds."""
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


def _staging(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Host memory that a CUDA device reaches by itself; torch keeps it for the next call."""
    return torch.empty(shape, dtype=dtype, pin_memory=True)
