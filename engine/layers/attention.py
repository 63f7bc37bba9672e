"""Self attention of one layer: projections and rotation here, everything about pages in the attention backend.

T = tokens of the step, H = query heads, K = key/value heads, D = head dimension.
"""

import torch

from engine.attention.backend import AttentionShape, AttentionStep
from engine.layers.linear import Linear
from engine.layers.norm import HeadNorm
from engine.layers.rotary import Rotation


class SelfAttention:
    def __init__(
        self, layer_id: int, shape: AttentionShape, qkv: Linear, output: Linear, head_norm: HeadNorm | None = None
    ) -> None:
        """qkv gives [T, (H + 2 K) D]: all query heads, all key heads, all value heads."""
        self._layer_id = layer_id
        self._shape = shape
        self._qkv = qkv
        self._output = output
        self._head_norm = head_norm

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, attention: AttentionStep) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes keys and values of these tokens into their pages."""
        shape = self._shape
        qkv = self._qkv(x).view(x.shape[0], -1, shape.head_dim)
        query_key = qkv[:, : shape.num_heads + shape.num_kv_heads]
        if self._head_norm is not None:
            query_key.copy_(self._head_norm(query_key))
        if rotation is not None:
            rotation.apply_(query_key)
        key_value = qkv[:, shape.num_heads :].view(-1, 2, shape.num_kv_heads, shape.head_dim)
        return self._output(attention.attend(self._layer_id, qkv[:, : shape.num_heads], key_value))
