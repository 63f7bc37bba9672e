"""Inputs and weights for tests of the gated delta rule, with a decay for every head or for every channel of a key."""

from dataclasses import dataclass

import torch

from engine.kernels.state_kernels import DeltaWeights, StateKernels, StatesInPlace
from tests.engine.kernels.recurrent_steps import random_rows

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

    @property
    def state(self) -> tuple[int, int, int]:
        """The shape of a state."""
        return (self.heads, self.key_dim, self.value_dim)


#: Groups of value heads, and channels that fill no vector.
SIZES = (Sizes(4, 2, 16, 24), Sizes(3, 3, 5, 7))


@dataclass(frozen=True)
class Inputs:
    """Inputs of a step's tokens, with strided rows."""

    qkv: torch.Tensor
    gate: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor

    weights: DeltaWeights
    is_by_channel: bool = False

    @classmethod
    def random(
        cls,
        num_tokens: int,
        sizes: Sizes,
        dtype: torch.dtype,
        device: torch.device = CPU,
        *,
        is_by_channel: bool = False,
    ) -> "Inputs":
        """The same numbers in every dtype, but for rounding. Some heads forget slowly, some at once."""
        num_decays = sizes.heads * (sizes.key_dim if is_by_channel else 1)
        widths = (sizes.width, sizes.heads * sizes.value_dim, num_decays, sizes.heads)
        qkv, gate, a, b = (random_rows(num_tokens, size, dtype, device, seed) for seed, size in enumerate(widths))
        generator = torch.Generator().manual_seed(9)
        rates, step_bias, norm = (
            torch.rand(size, generator=generator).to(device) for size in (sizes.heads, num_decays, sizes.value_dim)
        )
        weights = DeltaWeights(-(rates * 3).exp() * 0.1, step_bias, norm, 1e-6)
        return cls(qkv, gate, a * 4, b * 4, weights, is_by_channel)

    def read_by(self, kernels: StateKernels, tokens: slice, states: StatesInPlace) -> torch.Tensor:
        """What those tokens read."""
        qkv, gate, a, b = (part[tokens] for part in (self.qkv, self.gate, self.a, self.b))
        read = kernels.channel_delta if self.is_by_channel else kernels.gated_delta
        return read(qkv, gate, a, b, self.weights, states)
