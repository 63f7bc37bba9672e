"""Steps for kernels of recurrent states: decodes, prompts, sequences that begin, and padding."""

import math
from dataclasses import dataclass

import torch

from engine.kernels.state_kernels import ScanHeads, StatesInPlace

NUM_PAGES = 7


@dataclass(frozen=True)
class Step:
    """Sequences of a step. Start 0: the sequence begins; page -1: padding, whose output is zero."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    pages: tuple[int, ...]

    def states(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> StatesInPlace:
        """Random states for sequences that have begun before, NaN in all other pages; pages have padding between
        them."""
        size = math.prod(shape)
        pool = torch.full((NUM_PAGES, size + 16), float("nan"))
        for start, page in zip(self.starts, self.pages, strict=True):
            if start and page >= 0:
                pool[page, 16:] = torch.randn(size, generator=torch.Generator().manual_seed(page))
        bounds = torch.tensor([0, *self.lengths]).cumsum(0).int()
        return StatesInPlace(
            pages=pool.to(dtype).to(device)[:, 16:].unflatten(1, shape),
            page_ids=torch.tensor(self.pages, device=device),
            starts=torch.tensor(self.starts, dtype=torch.int32, device=device),
            query_starts=bounds.to(device),
            max_queries=max(self.lengths),
        )


STEPS = {
    "decode": Step((5, 0, 9, 1), (1, 1, 1, 1), (2, 0, -1, 6)),
    "prompts and a decode": Step((0, 4, 9, 2), (11, 1, 3, 2), (3, 5, -1, 1)),
    "chunks of more than one tile": Step((8, 0), (17, 8), (4, 2)),
}


def random_rows(num_rows: int, size: int, dtype: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    """[num_rows, size], strided."""
    rows = torch.randn(num_rows, size + 5, generator=torch.Generator().manual_seed(seed))
    return rows.to(dtype).to(device)[:, 2:-3]


def random_heads(num_heads: int, device: torch.device) -> ScanHeads:
    """Heads of Mamba-2 whose steps reach both limits."""
    a, d, dt_bias = torch.rand(3, num_heads, generator=torch.Generator().manual_seed(7)).to(device)
    return ScanHeads(-a - 0.1, d, dt_bias, (0.05, 3.0))
