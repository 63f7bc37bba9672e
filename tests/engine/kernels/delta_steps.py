"""Steps for tests of the gated delta rule: inputs, weights, and states in pages that hold NaN elsewhere."""

from dataclasses import dataclass

import torch

from engine.kernels.state_kernels import DeltaWeights, StatesInPlace

NUM_PAGES = 7
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sizes:
    """Heads of a layer."""

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int

    @property
    def width(self) -> int:
        """Queries, keys and values of a token."""
        return 2 * self.key_heads * self.key_dim + self.heads * self.value_dim


#: Groups of value heads, and channels that fill no vector.
SIZES = (Sizes(4, 2, 16, 24), Sizes(3, 3, 5, 7))


@dataclass(frozen=True)
class Step:
    """Sequences of a step. Start 0: the sequence begins; page -1: padding, whose output is zero."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    pages: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Of all sequences."""
        return sum(self.lengths)

    def states(self, sizes: Sizes, device: torch.device = CPU) -> StatesInPlace:
        """Random states for sequences that have begun before, NaN in all other pages; pages have padding between
        them."""
        shape = (sizes.heads, sizes.key_dim, sizes.value_dim)
        size = sizes.heads * sizes.key_dim * sizes.value_dim
        pool = torch.full((NUM_PAGES, size + 16), float("nan"))
        for start, page in zip(self.starts, self.pages, strict=True):
            if start and page >= 0:
                pool[page, 16:] = torch.randn(size, generator=torch.Generator().manual_seed(page))
        return StatesInPlace(
            pages=pool.to(device)[:, 16:].unflatten(1, shape),
            page_ids=torch.tensor(self.pages, device=device),
            starts=torch.tensor(self.starts, dtype=torch.int32, device=device),
            query_starts=torch.tensor([0, *self.lengths]).cumsum(0).int().to(device),
            max_queries=max(self.lengths),
        )


STEPS = {
    "decode": Step((5, 0, 9, 1), (1, 1, 1, 1), (2, 0, -1, 6)),
    "prompts and a decode": Step((0, 4, 9, 2), (11, 1, 3, 2), (3, 5, -1, 1)),
    "more than one tile": Step((8, 0), (67, 33), (4, 2)),
}


@dataclass(frozen=True)
class Inputs:
    """Inputs of a step's tokens, with strided rows."""

    qkv: torch.Tensor
    gate: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor

    @classmethod
    def random(cls, num_tokens: int, sizes: Sizes, dtype: torch.dtype, device: torch.device = CPU) -> "Inputs":
        """The same numbers in every dtype, but for rounding."""
        values = sizes.heads * sizes.value_dim
        parts = []
        for seed, size in enumerate((sizes.width, values, sizes.heads, sizes.heads)):
            rows = torch.randn(num_tokens, size + 5, generator=torch.Generator().manual_seed(seed))
            parts.append((rows * (4 if seed > 1 else 1)).to(dtype).to(device)[:, 2:-3])
        return cls(*parts)

    def rows(self, first: int, last: int) -> "Inputs":
        """Those of the tokens [first, last)."""
        return Inputs(*(part[first:last] for part in (self.qkv, self.gate, self.a, self.b)))


def delta_weights(sizes: Sizes, device: torch.device = CPU) -> DeltaWeights:
    """Random heads: some forget slowly, some at once."""
    generator = torch.Generator().manual_seed(9)
    rates = -(torch.rand(sizes.heads, generator=generator) * 3).exp() * 0.1
    step_bias, norm = torch.rand(sizes.heads, generator=generator), torch.rand(sizes.value_dim, generator=generator)
    return DeltaWeights(rates.to(device), step_bias.to(device), norm.to(device), 1e-6)
