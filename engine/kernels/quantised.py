"""Quantised matrices, in one form for all formats of checkpoints: codes of 4 to 8 bits, and a scale for every output
and group of inputs.

Readers of formats (engine/formats) make them, layers cut and join them, operators bring them into their own layout.
O = outputs, I = inputs, G = groups of inputs, all of the same size and adjacent.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch

from engine.errors import CheckpointError

#: A half-open range of a dimension.
Range = tuple[int, int]

_ROWS = 512  #: outputs whose weights are computed at once


@dataclass(frozen=True, slots=True)
class QuantisedMatrix:
    """The weight of code u at output o and column c of group g: scales[o, g] * (value(u) - zeros[o, g])."""

    codes: torch.Tensor  #: uint8 [O, I]
    scales: torch.Tensor  #: float32 [O, G]
    bits: int  #: of a code: 4, 5, 6 or 8
    zeros: torch.Tensor | int = 0  #: float32 [O, G], or one number for all
    book: torch.Tensor | None = None  #: float32 [2^bits]: value(u); None: u itself
    order: torch.Tensor | None = None  #: int64 [I]: the input that a column belongs to; None: the same
    dtype: torch.dtype = torch.float32  #: of the weights where they are computed
    #: Most inputs whose activations share a scale where these are rounded, too; None: as many as the product allows.
    block_size: int | None = None

    @property
    def shape(self) -> torch.Size:
        """[O, I]."""
        return self.codes.shape

    @property
    def group_size(self) -> int:
        """Inputs of a group."""
        return self.codes.shape[1] // self.scales.shape[1]

    def __getitem__(self, outputs: slice | torch.Tensor) -> Self:
        """Only these outputs, as of a tensor: an expert of a stack, or its gates where they alternate with ups; or
        those with these indices, in their order."""
        return replace(
            self,
            codes=self.codes[outputs],
            scales=self.scales[outputs],
            zeros=self.zeros if isinstance(self.zeros, int) else self.zeros[outputs],
        )

    def outputs(self, ranges: Sequence[Range]) -> Self:
        """Only the outputs in these ranges."""
        return replace(
            self,
            codes=_rows(self.codes, ranges),
            scales=_rows(self.scales, ranges),
            zeros=self.zeros if isinstance(self.zeros, int) else _rows(self.zeros, ranges),
        )

    def inputs(self, ranges: Sequence[Range]) -> Self:
        """Only the inputs in these ranges; groups become smaller where a range begins inside one. Raises
        CheckpointError where inputs are not in order."""
        if self.order is not None:
            raise CheckpointError("a matrix with act-order cannot be cut along its inputs; use fewer processes")
        size = math.gcd(self.group_size, *(bound for each in ranges for bound in each))
        fine = self.regrouped(size)
        groups = [(first // size, last // size) for first, last in ranges]
        zeros = fine.zeros if isinstance(fine.zeros, int) else _rows(fine.zeros.T, groups).T
        return replace(fine, codes=_rows(fine.codes.T, ranges).T, scales=_rows(fine.scales.T, groups).T, zeros=zeros)

    def regrouped(self, group_size: int) -> Self:
        """The same weights in groups of that size, a divisor of the present one."""
        times = self.group_size // group_size
        if times == 1:
            return self
        zeros = self.zeros if isinstance(self.zeros, int) else self.zeros.repeat_interleave(times, dim=1)
        return replace(self, scales=self.scales.repeat_interleave(times, dim=1), zeros=zeros)

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """On that device, for weights in that dtype."""
        return replace(
            self,
            codes=self.codes.to(device),
            scales=self.scales.to(device),
            zeros=self.zeros if isinstance(self.zeros, int) else self.zeros.to(device),
            book=None if self.book is None else self.book.to(device),
            order=None if self.order is None else self.order.to(device),
            dtype=dtype,
        )

    def padded_outputs(self, count: int) -> Self:
        """With zeros behind the last output, to that many."""
        missing = count - len(self.codes)

        def pad(tensor: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(tensor, (0, 0, 0, missing))

        zeros = self.zeros if isinstance(self.zeros, int) else pad(self.zeros)
        return replace(self, codes=pad(self.codes), scales=pad(self.scales), zeros=zeros)

    def in_memory(self) -> "StoredMatrix":
        """The matrix as it stays in memory."""
        codes = self.codes
        if self.bits == 4:
            even = codes if codes.shape[1] % 2 == 0 else torch.nn.functional.pad(codes, (0, 1))
            codes = even[:, ::2] | even[:, 1::2] << 4
        return StoredMatrix(replace(self, codes=codes.contiguous()), self.codes.shape[1])

    def dequantised(self) -> torch.Tensor:
        """The weights [O, I], inputs in order."""
        return self.in_memory().rows(slice(None))


class StoredMatrix:
    """A quantised matrix with two codes of 4 bits in a byte, and its weights, computed when they are needed."""

    def __init__(self, packed: QuantisedMatrix, num_inputs: int) -> None:
        """packed: with codes [O, I / 2] if they have 4 bits."""
        self._matrix = packed
        self._num_inputs = num_inputs
        self._places = None if packed.order is None else torch.argsort(packed.order)

    def __len__(self) -> int:
        return len(self._matrix.codes)

    def rows(self, which: slice | torch.Tensor) -> torch.Tensor:
        """The weights of these outputs [ids or slice, I]."""
        ids = torch.arange(len(self), device=self._matrix.codes.device)[which] if isinstance(which, slice) else which
        result = torch.empty((len(ids), self._num_inputs), dtype=self._matrix.dtype, device=self._matrix.codes.device)
        for first in range(0, len(ids), _ROWS):
            result[first : first + _ROWS] = self._some_rows(ids[first : first + _ROWS])
        return result

    def _some_rows(self, ids: torch.Tensor) -> torch.Tensor:
        matrix = self._matrix
        codes = matrix.codes[ids]
        if matrix.bits == 4:
            codes = torch.stack((codes & 15, codes >> 4), dim=2).flatten(1)[:, : self._num_inputs]
        values = codes.float() if matrix.book is None else matrix.book[codes.int()]
        scales = matrix.scales[ids]
        grouped = values.reshape(len(ids), scales.shape[1], -1)
        zeros = matrix.zeros if isinstance(matrix.zeros, int) else matrix.zeros[ids][:, :, None]
        weights = ((grouped - zeros) * scales[:, :, None]).flatten(1)
        return weights if self._places is None else weights[:, self._places]


class QuantisedStack:
    """Quantised matrices of the same shape, those of experts. Each is decoded when it is asked for: only its codes take
    a byte each then."""

    def __init__(self, count: int, decode: Callable[[int], QuantisedMatrix]) -> None:
        """decode: gives the matrix of that index."""
        self._count = count
        self._decode = decode

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> QuantisedMatrix:
        return self._decode(index)

    def mapped(self, change: Callable[[QuantisedMatrix], QuantisedMatrix]) -> "QuantisedStack":
        """The same stack with every matrix changed."""
        return QuantisedStack(self._count, lambda index: change(self._decode(index)))


#: A matrix [out, in] that a product can be made of.
Matrix = torch.Tensor | QuantisedMatrix
#: Matrices of experts: a tensor [experts, out, in], or quantised ones.
MatrixStack = torch.Tensor | QuantisedStack


def joined(matrices: Sequence[QuantisedMatrix]) -> QuantisedMatrix | None:
    """The outputs of all matrices one after another, [all O, I]; None where they differ in more than groups and zero
    points."""
    first = matrices[0]
    if any(each.bits != first.bits or each.shape[1] != first.shape[1] for each in matrices):
        return None
    if not all(_is_same(each.order, first.order) and _is_same(each.book, first.book) for each in matrices):
        return None
    size = math.gcd(*(each.group_size for each in matrices))
    parts = [each.regrouped(size) for each in matrices]
    zeros: torch.Tensor | int = first.zeros
    if any(isinstance(each.zeros, torch.Tensor) or each.zeros != zeros for each in parts):
        zeros = torch.cat([torch.as_tensor(each.zeros).float().expand_as(each.scales) for each in parts])
    codes, scales = torch.cat([each.codes for each in parts]), torch.cat([each.scales for each in parts])
    return replace(first, codes=codes, scales=scales, zeros=zeros)


def quantised(
    weight: torch.Tensor, bits: int, group_size: int, importance: torch.Tensor | None = None
) -> QuantisedMatrix:
    """weight [O, I] rounded: by groups of that size (a smaller divisor of I where it does not fit).

    Codes of 8 bits are symmetric. Fewer bits have the scale and the minimum with the smallest sum of squared errors,
    each times importance [I] and the root of its square plus the group's mean square: errors of large weights and of
    large inputs count more. Several steps of the group's range give codes, and least squares the scale and minimum for
    these (as llama.cpp does for its K-quants). importance: mean squares of the inputs; None: all the same.
    """
    group_size = math.gcd(group_size, weight.shape[1])
    factors = torch.ones(weight.shape[1]) if importance is None else importance
    factors = factors.to(weight.device, torch.float32).view(-1, group_size)
    matrix = hollow(weight.shape, bits, group_size, weight.device)
    for first in range(0, len(weight), _ROWS):
        rows = slice(first, first + _ROWS)
        groups = weight[rows].float().view(-1, *factors.shape)
        codes, matrix.scales[rows], zeros = _symmetric(groups) if bits == 8 else _of_least_error(groups, bits, factors)
        matrix.codes[rows] = codes.flatten(1)
        if isinstance(matrix.zeros, torch.Tensor):
            matrix.zeros[rows] = zeros
    return matrix


@dataclass(frozen=True, slots=True)
class RoundedForm:
    """How a matrix is rounded on CPU when it is loaded."""

    bits: int  #: of a code
    group_size: int  #: inputs that share a scale, and a minimum where codes are not symmetric
    block_size: int  #: as of QuantisedMatrix

    @classmethod
    def head(cls, num_inputs: int) -> Self:
        """The form of heads, tied embeddings and scores of experts. Small blocks cost little in one product of few
        rows, and errors of logits weigh much."""
        return cls(8, _group_of(128, num_inputs), 32)

    @classmethod
    def int8(cls, num_inputs: int) -> Self:
        """The form of the layers of "int8"."""
        return cls(8, _group_of(128, num_inputs), 64)

    @classmethod
    def int4(cls, num_inputs: int) -> Self:
        """The form of the layers of "int4": 5.5 bits a weight. 4 bits in small groups, where codes of 5 would take a
        byte."""
        group_size = _group_of(64, num_inputs)
        return cls(4 if group_size % _LEAST_GROUP_OF_5_BITS else 5, group_size, 64)

    @property
    def bits_per_weight(self) -> float:
        """With the scales."""
        return self.bits + _SCALE_BITS * (1 if self.bits == 8 else 2) / self.group_size


_LEAST_GROUP, _LEAST_GROUP_OF_5_BITS = 8, 32
_SCALE_BITS = 16  #: of a scale, and of a minimum


def _group_of(size: int, num_inputs: int) -> int:
    """Groups of that size, or of a divisor; one group of all inputs where only tiny ones would fit."""
    group_size = math.gcd(size, num_inputs)
    return group_size if group_size >= _LEAST_GROUP else num_inputs


def hollow(shape: torch.Size, bits: int, group_size: int, device: torch.device | None = None) -> QuantisedMatrix:
    """A matrix of the form that `quantised` gives, with undefined values. device: None: the CPU."""
    codes = torch.empty(shape, dtype=torch.uint8, device=device)
    scales = torch.empty(shape[0], shape[1] // group_size, device=device)
    return QuantisedMatrix(codes, scales, bits, 128 if bits == 8 else torch.empty_like(scales))


_LEAST_SCALE = 1e-30
_CANDIDATES = 21  #: steps of a group's range that are tried: kCandidates in rounding.cpp


def _symmetric(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """groups [O, G, size] -> codes uint8 [O, G, size], scales and zero points [O, G]."""
    scales = groups.abs().amax(dim=2) / 127
    codes = (groups / scales.clamp(min=_LEAST_SCALE)[:, :, None]).round_().add_(128)
    return codes.to(torch.uint8), scales, torch.full_like(scales, 128.0)


def _of_least_error(
    groups: torch.Tensor, bits: int, factors: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As _symmetric, with codes of `bits` bits; factors [G, size]. The same search as round_group in rounding.cpp."""
    largest = (1 << bits) - 1
    low, high = groups.amin(dim=2), groups.amax(dim=2)
    span, shifted = high - low, groups - low[:, :, None]
    weights = factors * (groups.square().mean(dim=2, keepdim=True) + groups.square()).sqrt_()
    weighted = weights * groups
    sum_t, sum_w = (part.sum(dim=2).double() for part in (weights, weighted))
    inverse = torch.zeros_like(low)  # of groups whose weights are all the same: code 0 is that weight
    step, bottom = low.abs().clamp_(min=_LEAST_SCALE).double(), low.double()
    most = torch.full_like(step, -torch.inf)
    for candidate in range(_CANDIDATES):
        tried = (largest - 1.0 + 0.1 * candidate) / span.clamp(min=_LEAST_SCALE)
        codes = (shifted * tried[:, :, None] + 0.5).floor_().clamp_(max=largest)
        products = weights * codes
        sum_q, sum_qq = products.sum(dim=2).double(), (products * codes).sum(dim=2).double()
        sum_qw = (weighted * codes).sum(dim=2).double()
        spread = sum_t * sum_qq - sum_q.square()
        scale, least = (sum_t * sum_qw - sum_w * sum_q) / spread, (sum_qq * sum_w - sum_q * sum_qw) / spread
        gained = scale * sum_qw + least * sum_w  # the error is that of zeros, less this
        is_better = (span > _LEAST_SCALE) & (spread > 0) & (scale > 0) & (gained > most)
        inverse, step, bottom, most = (
            torch.where(is_better, new, old)
            for new, old in ((tried, inverse), (scale, step), (least, bottom), (gained, most))
        )
    codes = (shifted * inverse[:, :, None] + 0.5).floor_().clamp_(max=largest)
    return codes.to(torch.uint8), step.float(), (-bottom / step).float()


def _rows(tensor: torch.Tensor, ranges: Sequence[Range]) -> torch.Tensor:
    return torch.cat([tensor[first:last] for first, last in ranges])


def _is_same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))
