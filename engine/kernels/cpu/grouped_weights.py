"""Quantised matrices in the layout of grouped.h: panels of codes, and scales in float16.

Float16 holds a scale relative to the largest one of its output, so its range is never left. The product needs code
books of integers: those of 4 bits that are none (NF4) are rounded to 127 steps of their largest value, codes of 8 bits
(FP8) become plain ones in groups of 32.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from engine.kernels.cpu.library import Library
from engine.kernels.cpu.steps import GroupedWeights
from engine.kernels.cpu.weight_memory import WeightMemory
from engine.kernels.quantised import QuantisedMatrix, hollow, quantised

_MOST_BLOCK = 128  #: kMostBlock in grouped.h
_STEP = 8  #: columns of a step: every block holds whole ones
_CODES = {4: 8, 5: 32, 6: 16, 8: 8}  #: columns of a step by bits of a code, as inputs_of in grouped.cpp
_WIDE_STEP = 64  #: columns to which inputs without groups are padded, so that they fall into large blocks
_REGROUPED = 32  #: inputs of a group of rounded FP8
_LARGEST_BYTE = 255
_BOOK_STEPS = 127  #: from 0 to the largest value of a rounded code book


class PackedGroups:
    """A packed matrix; `weights` points into the tensors that it keeps."""

    def __init__(self, library: Library, memory: WeightMemory, matrix: QuantisedMatrix) -> None:
        """library: packs. memory: where the packed matrix lies."""
        self.shape = matrix.shape
        num_outputs, num_inputs = matrix.shape
        book, matrix = _integer_book(matrix, has_values=not memory.is_filled)
        matrix = _padded_inputs(matrix)
        self.block = _block(matrix)
        if self.block % _CODES[matrix.bits]:
            matrix = replace(matrix, bits=8)  # blocks hold no whole steps: a byte for each code
        num_columns, group = matrix.shape[1], matrix.group_size
        num_panels = -(-num_outputs // library.panel_outputs)
        num_padded, num_groups = num_panels * library.panel_outputs, num_columns // group
        zero = matrix.zeros if isinstance(matrix.zeros, int) else 1 << (matrix.bits - 1)
        has_offsets, order = isinstance(matrix.zeros, torch.Tensor), matrix.order
        codes = memory.empty(num_padded * num_columns * matrix.bits // 8, torch.uint8)
        factors = memory.empty(num_padded, torch.float32)
        scales = memory.empty(num_padded * num_groups, torch.float16)
        offsets = memory.empty(num_padded * num_groups, torch.float16) if has_offsets else None
        places = None if order is None else memory.empty(num_columns, torch.int32)
        if not memory.is_filled:
            own = matrix.codes.contiguous()
            library.pack_grouped(
                own.data_ptr(), codes.data_ptr(), num_outputs, num_columns, matrix.bits, library.num_threads
            )
            shifts = None if offsets is None else matrix.scales * (zero - matrix.zeros) / zero
            largest = matrix.scales.abs().amax(dim=1)
            if shifts is not None:
                largest = torch.maximum(largest, shifts.abs().amax(dim=1))
            powers = torch.exp2(torch.log2(largest.clamp(min=torch.finfo(torch.float32).tiny)).floor())
            factors.copy_(F.pad(powers, (0, num_padded - num_outputs)))
            scales.copy_(_in_panels(matrix.scales / powers[:, None], library.panel_outputs))
            if offsets is not None and shifts is not None:
                offsets.copy_(_in_panels(shifts / powers[:, None], library.panel_outputs))
            if places is not None and order is not None:
                places.copy_(order)
        self._tensors = (codes, factors, scales, offsets, places, book)
        self.num_columns = num_columns
        self.weights = GroupedWeights(
            packed=codes.data_ptr(),
            scales=scales.data_ptr(),
            offsets=_address(offsets),
            factors=factors.data_ptr(),
            order=_address(places),
            book=_address(book),
            bits=matrix.bits,
            num_inputs=num_inputs,
            num_columns=num_columns,
            group=group,
            block=self.block,
            zero=zero,
        )

    @property
    def num_blocks(self) -> int:
        """Blocks of a row's inputs."""
        return self.num_columns // self.block


def _integer_book(matrix: QuantisedMatrix, *, has_values: bool) -> tuple[torch.Tensor | None, QuantisedMatrix]:
    """The code book as bytes [16], and the matrix with scales and zero point of those bytes. None: it needs none."""
    book = matrix.book
    if book is None:
        return None, matrix
    if matrix.bits == 4 and matrix.zeros == 0:
        step = _step_of(book)
        bytes_of, zero = ((book - book.min()) / step).round(), round(-float(book.min()) / step)
        return bytes_of.to(torch.uint8), replace(matrix, scales=matrix.scales * step, zeros=zero, book=None)
    if not has_values:
        empty = hollow(matrix.shape, 8, math.gcd(_REGROUPED, matrix.shape[1]))
        return None, replace(empty, order=matrix.order)
    ordered = matrix.order
    rounded = quantised(replace(matrix, order=None, dtype=torch.float32).dequantised(), 8, _REGROUPED)
    return None, replace(rounded, order=ordered)


def _step_of(book: torch.Tensor) -> float:
    """What the values of a code book are whole multiples of, exactly or rounded."""
    steps = book.sort().values.diff()
    step = float(steps[steps > 0].min()) if bool((steps > 0).any()) else 1.0
    multiples = book / step
    is_exact = (
        bool((multiples == multiples.round()).all()) and float(multiples.max() - multiples.min()) <= _LARGEST_BYTE
    )
    return step if is_exact else float(book.abs().max()) / _BOOK_STEPS


def _padded_inputs(matrix: QuantisedMatrix) -> QuantisedMatrix:
    """A matrix whose groups are whole blocks, with -1 in its order for columns without an input. Their codes are of no
    importance, since their x is zero."""
    group, (num_outputs, num_inputs) = matrix.group_size, matrix.shape
    if group % _STEP == 0:
        return matrix
    is_wide = group == num_inputs and group > _MOST_BLOCK
    padding = -group % (_WIDE_STEP if is_wide else _STEP)
    order = torch.arange(num_inputs) if matrix.order is None else matrix.order
    places = F.pad(order.view(-1, group), (0, padding), value=-1).flatten()
    codes = F.pad(matrix.codes.reshape(num_outputs, -1, group), (0, padding)).flatten(1)
    is_plain = matrix.order is None and group == num_inputs  # then columns behind the last input need no order
    return replace(matrix, codes=codes, order=None if is_plain else places)


def _block(matrix: QuantisedMatrix) -> int:
    """The largest divisor of a group that is a block."""
    most = min(_MOST_BLOCK, matrix.block_size or _MOST_BLOCK)
    return max(size for size in range(_STEP, most + 1, _STEP) if matrix.group_size % size == 0)


def _in_panels(values: torch.Tensor, panel_outputs: int) -> torch.Tensor:
    """[O, G] -> [panels, G, panel_outputs], flat; zeros fill the last panel."""
    whole = F.pad(values, (0, 0, 0, -len(values) % panel_outputs))
    return whole.view(-1, panel_outputs, values.shape[1]).transpose(1, 2).flatten()


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
