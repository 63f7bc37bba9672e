"""The linear layers of a model that adapters can change. A model's layers register themselves while they are loaded;
engine/adapters places adapters; the runner says which rows of a step have which.

One object a model, used by the engine thread alone once it is loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.kernels.adapters import AdapterProduct, AdapterRows
from engine.kernels.operators import AdapterShape, Operators


@dataclass(frozen=True, slots=True, eq=False)
class PointPart:
    """One of the projections that a linear layer computes together."""

    name: str  #: of the layer, as the model's code calls it, without ".weight"
    stored_name: str  #: as the checkpoint calls it
    num_outputs: int
    #: [outputs]: the checkpoint's output in each place, where the model has them in another order; None: the same.
    order: torch.Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class AdapterPoint:
    """A linear layer that adapters can change."""

    parts: tuple[PointPart, ...]
    num_inputs: int
    bias: torch.Tensor | None  #: [outputs of all parts], of the base
    product: AdapterProduct


class AdapterPoints:
    """All of them, and the adapters of the present step's rows."""

    def __init__(self, operators: Operators, dtype: torch.dtype, device: torch.device, num_slots: int, max_rank: int):
        """num_slots: adapters that are loaded at most, in the slots [1, num_slots]. max_rank: of each projection."""
        self.num_slots = num_slots
        self.max_rank = max_rank
        self.points: list[AdapterPoint] = []
        self._operators = operators
        self._dtype = dtype
        self._device = device
        self._rows: AdapterRows | None = None

    def register(self, parts: Sequence[PointPart], num_inputs: int, bias: torch.Tensor | None) -> "LinearAdapters":
        """A linear layer with the outputs of these parts side by side."""
        outputs = tuple(part.num_outputs for part in parts)
        shape = AdapterShape(self.num_slots, self.max_rank, num_inputs, outputs, self._dtype, self._device)
        point = AdapterPoint(tuple(parts), num_inputs, bias, self._operators.adapter_product(shape))
        self.points.append(point)
        return LinearAdapters(self, point.product)

    def begin(self, rows: AdapterRows | None) -> None:
        """The rows of the step that is computed next; None: none has an adapter."""
        self._rows = rows

    def num_parameters(self, rank: int) -> int:
        """Parameters of an adapter of that rank on every layer."""
        return rank * sum(part.num_outputs + point.num_inputs for point in self.points for part in point.parts)

    @property
    def bytes_per_slot(self) -> int:
        """Memory that an adapter of max_rank on every layer takes."""
        return self.num_parameters(self.max_rank) * self._dtype.itemsize

    def bytes_of(self, num_parameters: int) -> int:
        """Memory that an adapter takes: on CUDA that of its slot, whatever its rank."""
        return self.bytes_per_slot if self._device.type == "cuda" else num_parameters * self._dtype.itemsize

    @property
    def is_capturable(self) -> bool:
        """Whether a step with adapters can be captured as a CUDA graph: their rows are read on the device."""
        return all(point.product.is_capturable for point in self.points)

    @property
    def rows(self) -> AdapterRows | None:
        """See `begin`."""
        return self._rows


@dataclass(frozen=True, slots=True)
class LinearAdapters:
    """A linear layer's own view of them."""

    points: AdapterPoints
    product: AdapterProduct

    def add(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add the updates of the step's adapters to y [R, out], the layer's output for x [R, in]."""
        rows = self.points.rows
        if rows is not None:
            assert len(x) == rows.num_rows, "a layer that adapters can change computes all rows of a step"
            self.product.add(x, y, rows)
