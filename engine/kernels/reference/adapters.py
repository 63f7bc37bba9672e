"""Low-rank adapters in plain torch: the meaning of the C++ and Triton ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from engine.kernels.adapters import AdapterRows, LowRank
from engine.kernels.operators import LinearFunction


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    outputs: slice
    down: LinearFunction
    up: LinearFunction
    gains: torch.Tensor | None
    shifts: torch.Tensor | None


class TorchAdapterProduct:
    """The AdapterProduct of every device without compiled operators: two products for each run of rows."""

    is_capturable = False

    def __init__(
        self, bind: Callable[[torch.Tensor, None], LinearFunction], dtype: torch.dtype, device: torch.device
    ) -> None:
        """bind: the operators' product with a weight [out, in]; dtype and device: of rows."""
        self._bind = bind
        self._dtype = dtype
        self._device = device
        self._placed: dict[int, list[_Part]] = {}

    def place(self, slot: int, parts: Sequence[LowRank]) -> None:
        """As AdapterProduct.place."""
        self._placed[slot] = [
            _Part(
                slice(part.first_output, part.first_output + len(part.up)),
                self._bind(part.down.to(self._device, self._dtype), None),
                self._bind(part.up.to(self._device, self._dtype), None),
                None if part.gains is None else part.gains.to(self._device),
                None if part.shifts is None else part.shifts.to(self._device),
            )
            for part in parts
        ]

    def add(self, x: torch.Tensor, y: torch.Tensor, rows: AdapterRows) -> None:
        """As AdapterProduct.add. Sums are in float32 and rounded once."""
        for first, count, slot in rows.runs.tolist():
            own = slice(first, first + count)
            for part in self._placed.get(slot, ()):
                old = y[own, part.outputs].float()
                if part.gains is not None:
                    old *= part.gains
                if part.shifts is not None:
                    old += part.shifts
                y[own, part.outputs] = (old + part.up(part.down(x[own]))).to(y.dtype)
