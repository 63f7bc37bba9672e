"""Gated delta net (Yang et al. 2024): a short convolution over time, then a recurrence on a matrix per head, to which
each token adds what its key does not read of its value yet.

T = tokens of the step, H = value heads, G = key heads, D = channels of a key, V = of a value, K = taps of the
convolution, C = 2 G D + H V: its channels, queries, keys and values.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch

from engine.attention.backend import ForwardBatch, StateShape
from engine.attention.rotation import Rotation
from engine.errors import NotDivisible
from engine.kernels.state_kernels import DeltaWeights, StateKernels
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource
from engine.parallel.group import Place
from engine.parallel.shard import Shard


@dataclass(frozen=True, slots=True)
class DeltaSizes:
    """Sizes of one layer, read from a checkpoint's config; or of the heads that one process computes."""

    hidden: int
    num_heads: int  #: H, a multiple of G: consecutive value heads share a key head
    num_key_heads: int  #: G
    key_dim: int  #: D
    value_dim: int  #: V
    num_taps: int  #: K
    norm_eps: float

    @property
    def key_channels(self) -> int:
        """G D."""
        return self.num_key_heads * self.key_dim

    @property
    def value_channels(self) -> int:
        """H V."""
        return self.num_heads * self.value_dim

    @property
    def group_size(self) -> int:
        """Value heads of a key head."""
        return self.num_heads // self.num_key_heads

    def state_shapes(self, dtype: torch.dtype) -> tuple[StateShape, StateShape]:
        """The states of one layer. The matrices are in float32: they are rounded after every step, and tokens should
        not depend on where steps end."""
        return (
            StateShape("conv", (self.num_taps - 1, 2 * self.key_channels + self.value_channels), dtype),
            StateShape("delta", (self.num_heads, self.key_dim, self.value_dim), torch.float32),
        )


@dataclass(frozen=True, slots=True)
class DeltaShare:
    """The heads of one process; every process has equally many."""

    whole: DeltaSizes
    own: DeltaSizes
    keys: Shard  #: channels of the keys, and so of the queries
    values: Shard  #: channels
    heads: Shard  #: value heads

    @classmethod
    def of(cls, sizes: DeltaSizes, place: Place) -> Self:
        """Raises NotDivisible where the key heads cannot be divided."""
        if sizes.num_key_heads % place.size:
            raise NotDivisible(f"{sizes.num_key_heads} key heads cannot be divided among {place.size} processes")
        own = replace(sizes, num_heads=sizes.num_heads // place.size, num_key_heads=sizes.num_key_heads // place.size)
        keys, values, heads = (
            Shard.even(size, place, "heads") for size in (sizes.key_channels, sizes.value_channels, sizes.num_heads)
        )
        return cls(sizes, own, keys, values, heads)

    @property
    def convolved(self) -> Shard:
        """Channels of the convolution."""
        return Shard.stacked([self.keys, self.keys, self.values])


class DeltaNet:
    """One gated delta net; its two states live in the pages of the sequences."""

    def __init__(
        self,
        conv_id: int,
        delta_id: int,
        sizes: DeltaSizes,
        in_proj: Linear,
        conv: torch.Tensor,
        delta: DeltaWeights,
        out_proj: Linear,
        kernels: StateKernels,
    ) -> None:
        """conv_id, delta_id: ids of the two states, in the order of DeltaSizes.state_shapes. in_proj [C + H V + 2 H,
        hidden]: the convolution's input, the gate, and of each head its strength and its step; conv [C, 1, K];
        out_proj [hidden, H V]."""
        self.is_capturable = kernels.is_capturable
        self._conv_id = conv_id
        self._delta_id = delta_id
        self._parts = [2 * sizes.key_channels + sizes.value_channels, sizes.value_channels, *2 * [sizes.num_heads]]
        self._in_proj = in_proj
        self._taps = conv[:, 0].t().contiguous()  # [K, C]
        self._delta = delta
        self._out_proj = out_proj
        self._kernels = kernels

    @classmethod
    def load(
        cls, weights: WeightSource, name: str, share: DeltaShare, conv_id: int, delta_id: int, in_proj: Linear
    ) -> Self:
        """Takes all tensors of the layer `name` but those of in_proj, under the names of Hugging Face checkpoints."""
        sizes = share.whole
        delta = DeltaWeights(
            rates=-weights.take(f"{name}.A_log", share.heads).float().exp(),
            step_bias=weights.take(f"{name}.dt_bias", share.heads).float(),
            norm=weights.take(f"{name}.norm.weight", sizes.value_dim).float(),
            eps=sizes.norm_eps,
        )
        return cls(
            conv_id,
            delta_id,
            share.own,
            in_proj,
            weights.take(f"{name}.conv1d.weight", share.convolved, 1, sizes.num_taps),
            delta,
            Linear.load(weights, f"{name}.out_proj", share.values, sizes.hidden, bias=False),
            weights.operators.state_kernels,
        )

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; advances both states of each sequence."""
        states, kernels = batch.states, self._kernels
        assert states is not None
        qkv, gate, strength, step = self._in_proj(x).split(self._parts, dim=1)
        qkv = kernels.causal_conv(qkv, self._taps, None, states.in_place(self._conv_id))
        read = kernels.gated_delta(qkv, gate, step, strength, self._delta, states.in_place(self._delta_id))
        return self._out_proj(read)
