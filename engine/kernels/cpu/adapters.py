"""Low-rank adapters of one linear layer for the C++ operators (adapters.h): their matrices by slot, in memory that
recorded steps point to."""

import ctypes
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from engine.kernels.adapters import AdapterRows, LowRank, stacked_ranks
from engine.kernels.cpu.functions import address
from engine.kernels.cpu.library import Library

_I, _P = ctypes.c_int64, ctypes.c_void_p
#: Bytes of the widest vector of any instruction set.
_VECTOR_BYTES = 64


class AdapterPart(ctypes.Structure):
    """AdapterPart of adapters.h."""

    _fields_ = (
        ("first_output", _I),
        ("num_outputs", _I),
        ("first_rank", _I),
        ("num_ranks", _I),
        ("up", _P),
        ("gains", _P),
        ("shifts", _P),
    )


class AdapterWeights(ctypes.Structure):
    """AdapterWeights of adapters.h."""

    _fields_ = (("down", _P), ("down_stride", _I), ("num_ranks", _I), ("num_parts", _I), ("parts", _P))


class CppAdapterProduct:
    """The AdapterProduct on CPU, for float32 and bfloat16."""

    is_capturable = False

    def __init__(self, library: Library, dtype: torch.dtype, num_slots: int, num_inputs: int) -> None:
        """num_slots: slots in use are [1, num_slots]."""
        self._library = library
        self._dtype = dtype
        self.num_inputs = num_inputs
        self._slots = (AdapterWeights * (num_slots + 1))()
        self._owned: dict[int, list[object]] = {}  # what a slot's structures point to
        self._call = library.function("add_adapters", dtype)

    @property
    def slots_address(self) -> int:
        """Address of the AdapterWeights by slot; it never changes."""
        return ctypes.addressof(self._slots)

    def place(self, slot: int, parts: Sequence[LowRank]) -> None:
        """As AdapterProduct.place. Between steps only."""
        assert 0 < slot < len(self._slots)
        if not parts:
            self._slots[slot] = AdapterWeights()
            self._owned.pop(slot, None)
            return
        firsts = stacked_ranks(parts)
        stride = self.num_inputs + -self.num_inputs % (_VECTOR_BYTES // self._dtype.itemsize)
        down = torch.zeros((firsts[-1], stride), dtype=self._dtype)
        placed = (AdapterPart * len(parts))()
        owned: list[object] = [down, placed]
        for index, part in enumerate(parts):
            first, num_ranks = firsts[index], firsts[index + 1] - firsts[index]
            down[first : first + len(part.down), : self.num_inputs] = part.down
            up = self._packed(F.pad(part.up, (0, num_ranks - part.up.shape[1])).to(self._dtype))
            gains = None if part.gains is None else part.gains.float().contiguous()
            shifts = part.shifts
            if gains is not None:
                shifts = torch.zeros_like(gains) if shifts is None else shifts.float().contiguous()
            placed[index] = AdapterPart(
                part.first_output, len(part.up), first, num_ranks, up.data_ptr(), address(gains), address(shifts)
            )
            owned += [up, gains, shifts]
        self._slots[slot] = AdapterWeights(down.data_ptr(), stride, firsts[-1], len(parts), ctypes.addressof(placed))
        self._owned[slot] = owned

    def add(self, x: torch.Tensor, y: torch.Tensor, rows: AdapterRows) -> None:
        """As AdapterProduct.add."""
        assert x.stride(1) == 1
        assert y.stride(1) == 1
        self._call(
            x.data_ptr(), x.stride(0), y.data_ptr(), y.stride(0), len(x), self.num_inputs,
            self.slots_address, rows.runs.ctypes.data, len(rows.runs), self._library.num_threads,
        )  # fmt: skip

    def _packed(self, weight: torch.Tensor) -> torch.Tensor:
        num_outputs, num_inputs = weight.shape
        num_panels = -(-num_outputs // self._library.panel_outputs)
        packed = torch.empty(num_panels * self._library.panel_outputs * num_inputs, dtype=weight.dtype)
        pack = self._library.function("pack_linear", weight.dtype)
        weight = weight.contiguous()
        pack(weight.data_ptr(), packed.data_ptr(), num_outputs, num_inputs, self._library.num_threads)
        return packed
