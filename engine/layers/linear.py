"""Matrix products with weights that were laid out once at load, as the operators like them."""

from collections.abc import Sequence
from typing import Self

import torch

from engine.kernels.operators import Operators
from engine.layers.weights import WeightSource


class Linear:
    """y = x W^T + b with W [out, in]."""

    def __init__(self, operators: Operators, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.multiply = operators.linear(weight, bias)  #: public for operators that join it with others

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
        weight = torch.cat(parts) if len(parts) > 1 else parts[0]
        return cls(weights.operators, weight, torch.cat(biases) if bias else None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [rows, in] -> [rows, out]."""
        return self.multiply(x)
