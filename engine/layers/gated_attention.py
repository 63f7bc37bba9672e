"""Self-attention whose output has a gate: each channel is multiplied by the sigmoid of a projection of the input
(Qwen3-Next).

T = tokens of the step, H = query heads, K = key/value heads, D = head dimension.
"""

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms
from engine.attention.rotation import Rotation
from engine.layers.attention import attend_narrowed
from engine.layers.linear import Linear


class GatedAttention:
    """output(attention(qkv(x)) * sigmoid(gate(x))) of one layer, for the heads that this process computes."""

    def __init__(
        self, layer_id: int, shape: AttentionShape, qkv: Linear, gate: Linear, output: Linear, head_norms: HeadNorms
    ) -> None:
        """qkv gives [T, (H + 2 K) D], all query heads first, and gate [T, H D]. head_norms: applied to each query head
        and each key head separately, before the rotation."""
        self._layer_id = layer_id
        self._shape = shape
        self._qkv = qkv
        self._gate = gate
        self._output = output
        self._head_norms = head_norms

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes the keys and values of these tokens into their pages."""
        heads = self._qkv(x).view(x.shape[0], -1, self._shape.head_dim)
        attended = batch.attention.attend(self._layer_id, heads, rotation, self._head_norms)
        return self._output(attended.mul_(self._gate(x).sigmoid_()))

    def narrowed(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """As NarrowingMixer.narrowed."""
        assert batch.narrowing is not None
        heads = self._qkv(x).view(x.shape[0], -1, self._shape.head_dim)
        attended = attend_narrowed(self._layer_id, self._shape, heads, rotation, self._head_norms, batch)
        if attended is None:
            return x[:0]
        return self._output(attended.mul_(self._gate(x.index_select(0, batch.narrowing.rows)).sigmoid_()))
