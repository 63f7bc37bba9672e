"""What a model's weights take in memory in each data type, from its configuration alone."""

from collections.abc import Mapping
from typing import Any

import torch

from engine.kernels.operators import LinearFunction
from engine.kernels.quantised import Matrix, RoundedForm
from engine.kernels.torch_operators import TorchOperators
from engine.layers.weights import ShapesOnly
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of


class _Counting(TorchOperators):
    """Operators that count the matrices which CppOperators would round."""

    def __init__(self) -> None:
        self.num_rounded = 0
        self.bits = {"int8": 0.0, "int4": 0.0}  #: of those, by data type

    def _count(self, matrix: Matrix | torch.Size, *, is_layer: bool) -> None:
        num_outputs, num_inputs = matrix if isinstance(matrix, torch.Size) else matrix.shape
        weights = num_outputs * num_inputs
        forms = (
            {"int8": RoundedForm.int8, "int4": RoundedForm.int4}
            if is_layer
            else dict.fromkeys(self.bits, RoundedForm.head)
        )
        self.num_rounded += weights
        for name, form in forms.items():
            self.bits[name] += weights * form(num_inputs).bits_per_weight

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        self._count(weight, is_layer=True)
        return super().linear(weight, bias)

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        for _ in range(len(weights)):
            self._count(weights.shape[1:], is_layer=True)
        return super().linear_by_head(weights)

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        self._count(weight, is_layer=False)
        return super().linear(weight, bias)

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        self._count(table, is_layer=False)
        return self.embedding(table), super().linear(table, None)


def weight_bytes(values: Mapping[str, Any]) -> Mapping[str, int]:
    """Bytes by the data type of weights, as on CPU, of the model with this config.json. Beside int8 and int4 the rest,
    mostly embeddings that are not tied, has 16 bits. Raises CheckpointError, also where no code can run the model."""
    settings, counting = ConfigReader(values), _Counting()
    shapes = ShapesOnly(operators=counting)
    architecture_of(settings).build(settings, shapes)
    rest = 2 * (shapes.num_parameters - counting.num_rounded)
    rounded = {name: rest + int(bits / 8) for name, bits in counting.bits.items()}
    return {"float32": 4 * shapes.num_parameters, "bfloat16": 2 * shapes.num_parameters, **rounded}
