"""Weights without values, of the shapes and forms that a model takes: to record launches, which depend on no value."""

from collections.abc import Callable

import torch

from engine.kernels.quantised import Matrix, MatrixStack, QuantisedMatrix, QuantisedStack
from engine.loader import DummyWeights
from engine.parallel.shard import Size, held_size

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _integers(bits: int, group: int, zeros: int | None) -> Callable[[int, int], QuantisedMatrix]:
    """zeros: the zero point of all groups; None: each has its own."""

    def make(outputs: int, inputs: int) -> QuantisedMatrix:
        codes = torch.zeros((outputs, inputs), dtype=torch.uint8)
        scales = torch.full((outputs, inputs // group), 0.01)
        return QuantisedMatrix(codes, scales, bits, torch.full_like(scales, 7.0) if zeros is None else zeros)

    return make


def _floats(bits: int, group: int, scale: float) -> Callable[[int, int], QuantisedMatrix]:
    """scale: of all groups, a power of two in MXFP4."""
    if bits == 8:
        book = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0.0)
    else:
        book = torch.tensor((*_E2M1, *(-value for value in _E2M1)))

    def make(outputs: int, inputs: int) -> QuantisedMatrix:
        codes = torch.zeros((outputs, inputs), dtype=torch.uint8)
        return QuantisedMatrix(codes, torch.full((outputs, inputs // group), scale), bits, book=book)

    return make


#: Formats of checkpoints: (outputs, inputs) -> a matrix of that form.
FORMS = {
    "AWQ": _integers(4, 128, None),
    "GPTQ": _integers(4, 128, 8),
    "Q6_K": _integers(6, 16, 32),
    "FP8": _floats(8, 128, 0.0011),
    "MXFP4": _floats(4, 32, 2.0**-5),
}


class HollowWeights(DummyWeights):
    """Tensors without values, which take no memory until something is written there. Linear layers and experts are
    quantised where `form`, a key of FORMS, is set."""

    form: str | None = None

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """An empty tensor of that shape."""
        return torch.empty(tuple(map(held_size, shape)), dtype=dtype or self.dtype)

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """As `take`, or a matrix of the form."""
        if not self.is_quantised(layer):
            return super().take_linear_weight(layer, out_features, in_features)
        return self._matrix(out_features, in_features)

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> MatrixStack:
        """As `take`, or matrices of the form."""
        if not self.is_quantised(name):
            return super().take_stack(name, count, out_features, in_features)
        return QuantisedStack(count, lambda _: self._matrix(out_features, in_features))

    def is_quantised(self, layer: str) -> bool:
        """Whether there is a form. Routers stay as they are."""
        return self.form is not None and not layer.endswith((".gate", ".router"))

    def _matrix(self, out_features: Size, in_features: Size) -> QuantisedMatrix:
        assert self.form is not None
        made = FORMS[self.form](held_size(out_features), held_size(in_features))
        return made.to(torch.device("cpu"), self.dtype)
