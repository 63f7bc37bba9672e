"""Matrix products. Weights are brought into the operators' layout once, when they are loaded.

Where the outputs are sharded, each process computes its own (column-parallel). Where the inputs are sharded, each
process computes a part of every sum, and the parts are added before the next operator reads them (row-parallel).
"""

from collections.abc import Sequence
from typing import Self

import torch

from engine.kernels.operators import LinearFunction, Operators
from engine.layers.weights import WeightSource
from engine.parallel.group import Group
from engine.parallel.shard import Shard, Size


class Linear:
    """y = x W^T + b with W [out, in]. `multiply` may be any other function of rows."""

    def __init__(self, multiply: LinearFunction, *, summed_over: Group | None = None) -> None:
        """summed_over: the processes that hold the other inputs; None: this process holds all inputs."""
        self.multiply = multiply  #: public: recorders put it into a list of steps
        self._group = summed_over

    @classmethod
    def bind(
        cls,
        operators: Operators,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        summed_over: Group | None = None,
    ) -> Self:
        """weight [out, in], bias [out], both in the layout of the checkpoint."""
        if summed_over is not None and summed_over.place.rank > 0:
            bias = None  # rank 0 adds it to the sum
        return cls(operators.linear(weight, bias), summed_over=summed_over)

    @classmethod
    def load(cls, weights: WeightSource, name: str, in_features: Size, out_features: Size, *, bias: bool) -> Self:
        """Takes `name`.weight [out, in], and `name`.bias [out] if there is one."""
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
        """Several projections of the same input as one product; their outputs stand side by side. A name may occur
        twice."""
        sizes = dict(zip(names, out_features, strict=True))
        parts = {name: weights.take_matrix(f"{name}.weight", out, in_features) for name, out in sizes.items()}
        biases = {name: weights.take(f"{name}.bias", out) for name, out in sizes.items() if bias}
        return cls.bind(
            weights.operators,
            _stacked([parts[name] for name in names]),
            torch.cat([biases[name] for name in names]) if bias else None,
            summed_over=weights.group if isinstance(in_features, Shard) and not in_features.is_whole else None,
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [rows, in] -> [rows, out]."""
        return self.completed(self.multiply(x))

    def completed(self, product: torch.Tensor) -> torch.Tensor:
        """The result of `multiply` plus the parts of the other processes; overwrites it."""
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
