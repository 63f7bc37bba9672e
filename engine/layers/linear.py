"""Matrix products with weights that were laid out once at load, as the operators like them.

Where the outputs are sharded, each process computes its own (column-parallel); where the inputs are, each process
computes a part of every sum, and the parts are added before anybody reads them (row-parallel).
"""

from collections.abc import Sequence
from typing import Self

import torch

from engine.kernels.operators import Operators
from engine.layers.weights import WeightSource
from engine.parallel.group import Group
from engine.parallel.shard import Shard, Size


class Linear:
    """y = x W^T + b with W [out, in]."""

    def __init__(
        self,
        operators: Operators,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        summed_over: Group | None = None,
    ) -> None:
        """summed_over: the processes that hold the other inputs; None: these are all."""
        if summed_over is not None and summed_over.place.rank > 0:
            bias = None  # a sum has it once
        self.multiply = operators.linear(weight, bias)  #: public for operators that join it with others
        self._group = summed_over

    @classmethod
    def load(cls, weights: WeightSource, name: str, in_features: Size, out_features: Size, *, bias: bool) -> Self:
        return cls.fused(weights, [name], in_features, [out_features], bias=bias)

    @classmethod
    def fused(
        cls,
        weights: WeightSource,
        names: Sequence[str],
        in_features: Size,
        out_features: Sequence[Size],
        *,
        bias: bool,
    ) -> Self:
        """Several projections of the same input as one product; their outputs stand side by side."""
        parts = [
            weights.take_matrix(f"{name}.weight", out, in_features)
            for name, out in zip(names, out_features, strict=True)
        ]
        biases = [weights.take(f"{name}.bias", out) for name, out in zip(names, out_features, strict=True) if bias]
        return cls(
            weights.operators,
            _stacked(parts),
            torch.cat(biases) if bias else None,
            summed_over=weights.group if isinstance(in_features, Shard) and not in_features.is_whole else None,
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [rows, in] -> [rows, out]."""
        return self.completed(self.multiply(x))

    def completed(self, product: torch.Tensor) -> torch.Tensor:
        """What `multiply` gave, once the other processes' parts are added to it; overwrites it."""
        return product if self._group is None else self._group.sum(product)

    @property
    def is_summed(self) -> bool:
        """Whether `multiply` gives only a part of the sums."""
        return self._group is not None


def _stacked(matrices: Sequence[torch.Tensor]) -> torch.Tensor:
    """[out, in] of each -> [all outs, in]."""
    if len(matrices) == 1:
        return matrices[0]
    if matrices[0].is_meta:  # torch.cat would import torch's compiler for it, which takes a second
        return matrices[0].new_empty((sum(map(len, matrices)), matrices[0].shape[1]))
    return torch.cat(list(matrices))
