"""Self-attention of one layer: projections are computed here, attention over pages by the attention backend.

T = tokens of the step, H = query heads, K = key/value heads, D = head dimension.
"""

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms, SplitAttentionStep
from engine.attention.rotation import Rotation
from engine.layers.linear import Linear


class SelfAttention:
    """output(attention(qkv(x))) of one layer, for the heads that this process computes."""

    def __init__(
        self,
        layer_id: int,
        shape: AttentionShape,
        qkv: Linear,
        output: Linear,
        head_norms: HeadNorms | None = None,
        *,
        scales_queries: bool = False,
    ) -> None:
        """qkv gives [T, (H + 2 K) D]: all query heads, all key heads, all value heads; [T, H D] for a layer that shares
        another's keys and values.

        head_norms: applied to each head separately, before the rotation. scales_queries: multiplies queries by the
        rotation's query_scale. Head norms would undo that.
        """
        assert head_norms is None or not scales_queries
        self.layer_id = layer_id
        self.qkv = qkv
        self.output = output
        self.head_norms = head_norms
        self.scales_queries = scales_queries
        self._shape = shape

    @property
    def stores(self) -> bool:
        """Whether the layer stores keys and values, and does not share another's."""
        return self._shape.shares_with is None

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes the keys and values of these tokens into their pages."""
        heads, rotation = self._heads(x, rotation)
        return self.output(batch.attention.attend(self.layer_id, heads, rotation, self.head_norms))

    def narrowed(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """As NarrowingMixer.narrowed; for a layer that stores keys and values."""
        heads, rotation = self._heads(x, rotation)
        attended = attend_narrowed(self.layer_id, self._shape, heads, rotation, self.head_norms, batch)
        return x[:0] if attended is None else self.output(attended)

    def _heads(self, x: torch.Tensor, rotation: Rotation | None) -> tuple[torch.Tensor, Rotation | None]:
        """x [T, hidden] -> [T, heads, D], queries scaled where the layer does that, and the rotation still to do."""
        heads = self.qkv(x).view(x.shape[0], -1, self._shape.head_dim)
        if self.scales_queries:
            assert rotation is not None
            assert rotation.query_scale is not None
            heads[:, : self._shape.num_heads] *= rotation.query_scale
            if not rotation.cos.shape[1]:
                rotation = None  # it has nothing but the scale
        return heads, rotation


def attend_narrowed(
    layer_id: int,
    shape: AttentionShape,
    heads: torch.Tensor,
    rotation: Rotation | None,
    head_norms: HeadNorms | None,
    batch: ForwardBatch,
) -> torch.Tensor | None:
    """heads [T, H + 2 K, D] -> [R, H * output_dim]: all tokens are stored, the rows of the batch's narrowing attend.
    None: R = 0."""
    narrowing, step = batch.narrowing, batch.attention
    assert narrowing is not None
    assert isinstance(step, SplitAttentionStep)
    query = heads[:, : shape.num_heads].index_select(0, narrowing.rows)
    step.store(layer_id, heads, rotation, head_norms)
    if narrowing.batch is None:
        return None
    inner = narrowing.batch.attention
    assert isinstance(inner, SplitAttentionStep)
    turned = None if rotation is None else rotation.of_rows(narrowing.rows)
    return inner.read(layer_id, query, turned, head_norms)
