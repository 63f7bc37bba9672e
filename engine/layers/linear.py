"""Matrix products. Weights are brought into the operators' layout once, when they are loaded.

Where the outputs are sharded, each process computes its own (column-parallel). Where the inputs are sharded, each
process computes a part of every sum, and the parts are added before the next operator reads them (row-parallel).
"""

from collections.abc import Sequence
from typing import Self

import torch

from engine.kernels.operators import Adapted, LinearFunction, Operators
from engine.kernels.quantised import Matrix, QuantisedMatrix, joined
from engine.layers.adapter_points import LinearAdapters, PointPart
from engine.layers.weights import WeightSource
from engine.parallel.group import Group
from engine.parallel.shard import Shard, Size, held_size


class Linear:
    """y = x W^T + b with W [out, in]. `multiply` may be any other function of rows."""

    def __init__(
        self, multiply: LinearFunction, *, summed_over: Group | None = None, adapters: LinearAdapters | None = None
    ) -> None:
        """summed_over: the processes that hold the other inputs; None: this process holds all inputs. adapters: adds
        those of a step's rows; None: no adapter can change this layer."""
        self._multiply = multiply
        self._group = summed_over
        self._adapters = adapters

    @property
    def multiply(self) -> LinearFunction:
        """The product of this process's part alone, without adapters."""
        return self._multiply

    @classmethod
    def bind(
        cls,
        operators: Operators,
        weight: Matrix,
        bias: torch.Tensor | None = None,
        *,
        summed_over: Group | None = None,
    ) -> Self:
        """weight [out, in], bias [out], both in the layout of the checkpoint."""
        if summed_over is not None and summed_over.place.rank > 0:
            bias = None  # rank 0 adds it to the sum
        return cls(operators.linear(weight, bias), summed_over=summed_over)

    @classmethod
    def load(
        cls,
        weights: WeightSource,
        name: str,
        in_features: Size,
        out_features: Size,
        *,
        bias: bool,
        has_all_rows: bool = True,
    ) -> Self:
        """Takes `name`.weight [out, in], and `name`.bias [out] if there is one. has_all_rows: as `fused`."""
        return cls.fused(weights, [name], in_features, [out_features], bias=bias, has_all_rows=has_all_rows)

    @classmethod
    def fused(
        cls,
        weights: WeightSource,
        names: Sequence[str],
        in_features: Size,
        out_features: Sequence[Size],
        *,
        bias: bool,
        has_all_rows: bool = True,
    ) -> Self:
        """Several projections of the same input as one product; their outputs stand side by side. A name may occur
        twice. has_all_rows: False for a layer that computes other rows than those of the step's tokens, as an expert
        does: adapters cannot change it."""
        sizes = dict(zip(names, out_features, strict=True))
        taken = {name: weights.take_linear_weight(name, out, in_features) for name, out in sizes.items()}
        taken_biases = {name: weights.take(f"{name}.bias", out) for name, out in sizes.items() if bias}
        parts, biases = [taken[name] for name in names], [taken_biases[name] for name in names if bias]
        group = weights.group if isinstance(in_features, Shard) and not in_features.is_whole else None
        linear = cls.joined(weights.operators, parts, biases, summed_over=group)
        points = weights.adapter_points
        if points is not None and has_all_rows:
            places = [
                PointPart(name, weights.stored_name(name), held_size(out), weights.output_order(name, held_size(out)))
                for name, out in zip(names, out_features, strict=True)
            ]
            linear._adapters = points.register(places, held_size(in_features), torch.cat(biases) if biases else None)
        return linear

    @classmethod
    def load_router(
        cls, weights: WeightSource, name: str, hidden: int, num_experts: int, *, bias: bool = False
    ) -> Self:
        """As load, for the scores of experts: rounded less than other weights, because scores decide which experts are
        chosen."""
        weight = weights.take_linear_weight(name, num_experts, hidden)
        return cls(weights.operators.head(weight, weights.take(f"{name}.bias", num_experts) if bias else None))

    @classmethod
    def joined(
        cls,
        operators: Operators,
        parts: Sequence[Matrix],
        biases: Sequence[torch.Tensor],
        *,
        summed_over: Group | None = None,
    ) -> Self:
        """As bind, of matrices [out, in] and biases [out] one after another; biases may be empty."""
        if (whole := _stacked(parts)) is not None:
            bias = torch.cat(list(biases)) if biases else None
            return cls.bind(operators, whole, bias, summed_over=summed_over)
        products = [
            cls.bind(operators, part, biases[index] if biases else None, summed_over=summed_over)._multiply
            for index, part in enumerate(parts)
        ]
        return cls(_side_by_side(products), summed_over=summed_over)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [rows, in] -> [rows, out]."""
        return self.completed(self.partial(x))

    @property
    def operators(self) -> Adapted:
        """What recorders put into a list of steps: all but the sum over processes."""
        return Adapted(self._multiply, None if self._adapters is None else self._adapters.product)

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This process's part of the result, [rows, out], the updates of adapters included."""
        product = self._multiply(x)
        if self._adapters is not None:
            self._adapters.add(x, product)
        return product

    def completed(self, product: torch.Tensor) -> torch.Tensor:
        """The result of `partial` plus the parts of the other processes; overwrites it."""
        return product if self._group is None else self._group.sum(product)

    @property
    def is_summed(self) -> bool:
        """Whether `partial` gives only a part of the sums."""
        return self._group is not None


def _stacked(matrices: Sequence[Matrix]) -> Matrix | None:
    """[out, in] of each -> [all outs, in]; None: they have different forms and stay products of their own."""
    if len(matrices) == 1:
        return matrices[0]
    quantised = [matrix for matrix in matrices if isinstance(matrix, QuantisedMatrix)]
    if quantised:
        return joined(quantised) if len(quantised) == len(matrices) else None
    tensors = [matrix for matrix in matrices if isinstance(matrix, torch.Tensor)]
    if tensors[0].is_meta:  # torch.cat would import torch's compiler for it, which takes a second
        return tensors[0].new_empty((sum(map(len, tensors)), tensors[0].shape[1]))
    return torch.cat(tensors)


def _side_by_side(products: Sequence[LinearFunction]) -> LinearFunction:
    """Several products of the same rows, their outputs side by side."""
    return lambda x: torch.cat([multiply(x) for multiply in products], dim=1)


def ungrouped(matrix: torch.Tensor, num_groups: int, sizes: Sequence[int]) -> list[torch.Tensor]:
    """Parts of a matrix [out, in] whose outputs are groups of that many outputs of each part: [num_groups * size, in]
    of each part."""
    if matrix.is_meta:
        return [matrix.new_empty((num_groups * size, matrix.shape[1])) for size in sizes]
    groups = matrix.unflatten(0, (num_groups, sum(sizes)))
    return [part.flatten(0, 1) for part in groups.split(list(sizes), dim=1)]
