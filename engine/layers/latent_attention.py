"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): of each token one latent vector is stored, and one key
that is rotated, for all heads together.

Keys and values of a head are products of the latent. Those products are applied to the head's queries and to its
result instead, so that attention reads latents: one key/value head, whose values are the latent's channels of its key.

T = tokens of the step, H = query heads, R = rotated channels, L = channels of the latent, D = R + L, N = channels of a
head's query without rotation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, SplitAttentionStep
from engine.attention.rotation import Rotation
from engine.kernels.operators import LinearFunction
from engine.layers.linear import Linear
from engine.layers.norm import Norm


@dataclass(frozen=True)
class LatentProjections:
    """What surrounds attention over latents, for the heads that this process computes."""

    queries: Callable[[torch.Tensor], torch.Tensor]  #: [T, hidden] -> [T, H * (N + R)]
    latent: Linear  #: [T, hidden] -> [T, L + R], the rotated key last
    latent_norm: Norm
    keys_to_latent: LinearFunction  #: [T, H, N] -> [T, H, L]
    latent_to_values: LinearFunction  #: [T, H, L] -> [T, H, V]
    output: Linear  #: [T, H * V] -> [T, hidden]


class LatentAttention:
    """The mixer of a layer. Pages hold the rotated key first, then the latent."""

    def __init__(
        self, layer_id: int, shape: AttentionShape, projections: LatentProjections, *, is_interleaved: bool
    ) -> None:
        """shape: of one key/value head of D channels, of which the last L are its value. is_interleaved: pairs of
        rotated channels are adjacent in the projections; pages and queries have them half-split."""
        assert shape.value_dim is not None
        self._is_interleaved = is_interleaved
        self._layer_id = layer_id
        self._shape = shape
        self._latent_dim = shape.value_dim
        self._rotated_dim = shape.head_dim - shape.value_dim
        self._projections = projections

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes the latents of these tokens into their pages."""
        heads = self._heads(x)
        self._take_queries(x, heads[:, :-1])
        return self._output(batch.attention.attend(self._layer_id, heads, rotation, None))

    def narrowed(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """As NarrowingMixer.narrowed."""
        narrowing, step = batch.narrowing, batch.attention
        assert narrowing is not None
        assert isinstance(step, SplitAttentionStep)
        step.store(self._layer_id, self._heads(x), rotation, None)
        if narrowing.batch is None:
            return x[:0]
        inner = narrowing.batch.attention
        assert isinstance(inner, SplitAttentionStep)
        queries = x.new_empty((len(narrowing.rows), self._shape.num_heads, self._shape.head_dim))
        self._take_queries(x.index_select(0, narrowing.rows), queries)
        turned = None if rotation is None else rotation.of_rows(narrowing.rows)
        return self._output(inner.read(self._layer_id, queries, turned, None))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[T, H + 1, D]: what is stored, after room for the queries."""
        shape, turned, own = self._shape, self._rotated_dim, self._projections
        heads = x.new_empty((len(x), shape.num_heads + 1, shape.head_dim))
        latent, key = own.latent(x).split([self._latent_dim, turned], dim=-1)
        heads[:, -1, :turned] = self._half_split(key)
        heads[:, -1, turned:] = own.latent_norm(latent.contiguous())
        return heads

    def _take_queries(self, x: torch.Tensor, heads: torch.Tensor) -> None:
        """Writes the queries of x, as they read latents, into heads [T, H, D]."""
        turned, own = self._rotated_dim, self._projections
        queries = own.queries(x).view(len(x), self._shape.num_heads, -1)
        heads[:, :, :turned] = self._half_split(queries[:, :, -turned:])
        heads[:, :, turned:] = own.keys_to_latent(queries[:, :, :-turned])

    def _output(self, attended: torch.Tensor) -> torch.Tensor:
        """[T, H * L] -> [T, hidden]."""
        own = self._projections
        values = own.latent_to_values(attended.view(len(attended), self._shape.num_heads, -1))
        return own.output(values.reshape(len(attended), -1))

    def _half_split(self, channels: torch.Tensor) -> torch.Tensor:
        """[..., R], pairs as in the projections -> [..., R], pairs (i, i + R / 2)."""
        return channels.unflatten(-1, (-1, 2)).mT.flatten(-2) if self._is_interleaved else channels
