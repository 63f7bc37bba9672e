"""Matrix products with weights that were laid out once at load.

On CPU the weights are packed into oneDNN's own blocked layout: a row of a 576 x 49152 product in bfloat16 takes 2.3 ms
instead of 5.7 ms (one core of an AMD EPYC with AVX-512 BF16), because the plain layout is repacked in every call.
"""

from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F

from engine.layers.weights import WeightSource

#: Rows that the packed layout is chosen for; measured for 1 to 512 rows, only a hint of 1 is worse than others.
_PACK_ROWS = 32


class Linear:
    """y = x W^T + b with W [out, in]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._bias = bias
        self._is_packed = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACK_ROWS) if self._is_packed else weight
        )

    @classmethod
    def load(cls, weights: WeightSource, name: str, in_features: int, out_features: int, *, bias: bool) -> Self:
        return cls.fused(weights, [name], in_features, [out_features], bias=bias)

    @classmethod
    def fused(
        cls, weights: WeightSource, names: Sequence[str], in_features: int, out_features: Sequence[int], *, bias: bool
    ) -> Self:
        """Several projections of the same input as one product; their outputs stand side by side."""
        parts = [
            weights.take(f"{name}.weight", out, in_features) for name, out in zip(names, out_features, strict=True)
        ]
        biases = [weights.take(f"{name}.bias", out) for name, out in zip(names, out_features, strict=True) if bias]
        return cls(torch.cat(parts) if len(parts) > 1 else parts[0], torch.cat(biases) if bias else None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [rows, in] -> [rows, out]."""
        if self._is_packed:
            packed: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return packed
        return F.linear(x, self._weight, self._bias)
