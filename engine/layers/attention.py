"""Self attention of one layer: projections here, everything about heads and pages in the attention backend.

T = tokens of the step, H = query heads, K = key/value heads, D = head dimension.
"""

import torch

from engine.attention.backend import AttentionShape, AttentionStep, HeadNorms
from engine.attention.rotation import Rotation
from engine.layers.linear import Linear


class SelfAttention:
    def __init__(
        self, layer_id: int, shape: AttentionShape, qkv: Linear, output: Linear, head_norms: HeadNorms | None = None
    ) -> None:
        """qkv gives [T, (H + 2 K) D]: all query heads, all key heads, all value heads."""
        self._layer_id = layer_id
        self._shape = shape
        self._qkv = qkv
        self._output = output
        self._head_norms = head_norms

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, attention: AttentionStep) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes keys and values of these tokens into their pages."""
        return self.attend(self._qkv(x), rotation, attention)

    def attend(self, qkv: torch.Tensor, rotation: Rotation | None, attention: AttentionStep) -> torch.Tensor:
        """The same from the projections on, where the layer has computed them together with its norm."""
        heads = qkv.view(qkv.shape[0], -1, self._shape.head_dim)
        return self._output(attention.attend(self._layer_id, heads, rotation, self._head_norms))
