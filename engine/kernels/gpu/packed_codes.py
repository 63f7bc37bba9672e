"""Quantised matrices as the Triton products read them: codes in words of 32 bits, and scales by group.

The inputs are divided into blocks of SLOTS * WORDS; SLOTS is how many codes a word holds (8 of 4 bits, 4 of 8). Word j
of a block has, in slot i, the code of input i * WORDS + j. So what a shift and a mask make of the words of a row is
WORDS adjacent inputs, in the registers where the tensor cores want them: no code moves between threads.

Codes become float32 by a shift and a mask: see values_of.
"""

import enum
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from engine.kernels.quantised import QuantisedMatrix

#: Words of a row in a block of inputs: 128 bytes, a cache line; or half of it where inputs would be padded more.
_WORDS = (32, 16)
_ROWS = 1024  #: outputs that are packed at once
_EXPONENT_BIAS = 127
_EXPONENT_BITS = 8
_EXPONENTS_IN_WORD = 4
_MXFP4_GROUP = 32
#: Where scales are smaller than this part of what is subtracted, codes add less than float16 could tell.
_LARGEST_ZERO = 32768.0


class Kind(enum.IntEnum):
    """What a code stands for."""

    INT4 = 0
    INT8 = 1
    E4M3 = 2  #: 8-bit floats (FP8)
    E2M1 = 3  #: 4-bit floats (MXFP4)


#: Scales below these can be multiplied by all of the power of two that values_of leaves.
_SMALL_SCALES = {Kind.INT4: 2.0**-2, Kind.INT8: 2.0**-6, Kind.E4M3: 2.0**7, Kind.E2M1: 2.0}


class Scales(enum.IntEnum):
    """What a word of scales holds; there is one for each group and output."""

    FLOAT32 = 0
    WITH_ZEROS = 1  #: the scale in float16, and above it the zero point in float16
    EXPONENTS = 2  #: of four groups, each a byte: two to that power, less 127


@dataclass(frozen=True, slots=True)
class CodeForm:
    """All that a kernel is compiled for."""

    kind: Kind
    scales: Scales
    zero: int  #: the zero point of all integers, where scales have none beside them
    group: int  #: inputs that share a scale
    words: int  #: of a row in a block of inputs
    size: int  #: inputs
    has_small_scales: bool = True  #: all scales are below the limit of the kind

    @property
    def name(self) -> str:
        """For tables of tiles: "int4 with zeros in groups of 128"."""
        zeros = " with zeros" if self.scales is Scales.WITH_ZEROS else ""
        return f"{self.kind.name.lower()}{zeros} in groups of {self.group}"

    @property
    def slots(self) -> int:
        """Codes in a word."""
        return 8 if self.kind in (Kind.INT4, Kind.E2M1) else 4

    @property
    def block_k(self) -> int:
        """Inputs of a block."""
        return self.slots * self.words

    @property
    def num_blocks(self) -> int:
        """Blocks of inputs; the last one may be padded."""
        return int(triton.cdiv(self.size, self.block_k))

    def constants(self) -> dict[str, object]:
        """The constexpr arguments of a kernel that calls `decoded`."""
        return {
            "KIND": int(self.kind),
            "SCALES": int(self.scales),
            "ZERO": self.zero,
            "GROUP": self.group,
            "WORDS": self.words,
            "SIZE": self.size,
            "HAS_SMALL": self.has_small_scales,
        }


@dataclass(frozen=True, slots=True)
class PackedCodes:
    """A packed matrix [O, I], or matrices of experts [E, O, I]."""

    form: CodeForm
    words: torch.Tensor  #: int32 [(E,) O, blocks * WORDS]
    scales: torch.Tensor  #: int32 [(E,) G, O], or [(E,) G / 4, O] of exponents; words of 32 bits
    #: On the product: a power of two. Scales beside zero points are divided by it, so that the largest is within one
    #: power of two of the limit for small ones.
    factor: float
    order: torch.Tensor | None  #: int64 [I]: the input that a column belongs to; None: the same
    dtype: torch.dtype  #: of the weights where they are computed

    @property
    def num_outputs(self) -> int:
        """O."""
        return self.words.shape[-2]

    @property
    def nbytes(self) -> int:
        """Bytes of the device's memory."""
        return self.words.nbytes + self.scales.nbytes + (0 if self.order is None else self.order.nbytes)


def packed(matrix: QuantisedMatrix) -> PackedCodes | None:
    """The matrix in this layout, on its device; None: its code book is not one of the floats that kernels decode."""
    kind = _kind_of(matrix)
    if kind is None:
        return None
    slots, size = 8 if kind in (Kind.INT4, Kind.E2M1) else 4, matrix.shape[1]
    kept, scales, factor = _scales_of(matrix, kind)
    zero = matrix.zeros if isinstance(matrix.zeros, int) else 0
    is_small = kept is Scales.WITH_ZEROS or float(matrix.scales.abs().max()) < _SMALL_SCALES[kind]
    form = CodeForm(kind, kept, zero, matrix.group_size, words_for(size, slots), size, is_small)
    return PackedCodes(form, _words_of(matrix.codes, form), scales, factor, matrix.order, matrix.dtype)


def words_for(size: int, slots: int) -> int:
    """Words of a row in a block of inputs: as many as need the least padding."""
    return min(_WORDS, key=lambda words: triton.cdiv(size, words * slots) * words)


def _kind_of(matrix: QuantisedMatrix) -> Kind | None:
    if matrix.book is None:
        return Kind.INT4 if matrix.bits == 4 else Kind.INT8
    if matrix.zeros != 0:
        return None
    book = matrix.book.cpu()
    if matrix.bits == 4:
        positive = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
        return Kind.E2M1 if torch.equal(book, torch.cat((positive, -positive))) else None
    floats = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0.0)
    return Kind.E4M3 if torch.equal(book, floats) else None


def _words_of(codes: torch.Tensor, form: CodeForm) -> torch.Tensor:
    """codes uint8 [O, I] -> int32 [O, blocks * WORDS]."""
    num_columns, bits = form.num_blocks * form.block_k, 32 // form.slots
    words = torch.empty((len(codes), num_columns // form.slots), dtype=torch.int32, device=codes.device)
    for first in range(0, len(codes), _ROWS):
        part = F.pad(codes[first : first + _ROWS], (0, num_columns - form.size))
        slots = part.view(len(part), -1, form.slots, form.words).int()
        joined = slots[:, :, 0]
        for slot in range(1, form.slots):
            joined = joined | slots[:, :, slot] << bits * slot
        words[first : first + _ROWS] = joined.flatten(1)
    return words


def _scales_of(matrix: QuantisedMatrix, kind: Kind) -> tuple[Scales, torch.Tensor, float]:
    """How scales are kept, they themselves [G, O], and the factor on them."""
    scales = matrix.scales
    if isinstance(matrix.zeros, torch.Tensor):
        is_beyond = matrix.zeros.abs() > _LARGEST_ZERO  # a scale of almost nothing: the weight is -scale * zero
        scales = torch.where(is_beyond, scales * (matrix.zeros.abs() / _LARGEST_ZERO), scales)
        zeros = matrix.zeros.clamp(-_LARGEST_ZERO, _LARGEST_ZERO)
        largest = scales.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
        factor = float(torch.exp2(largest.log2().floor() + 1)) / _SMALL_SCALES[kind]
        halves = torch.stack(((scales / factor).half(), zeros.half()), dim=2)  # the lower half first
        return Scales.WITH_ZEROS, halves.view(torch.int32)[:, :, 0].T.contiguous(), factor
    if kind is Kind.E2M1 and matrix.group_size == _MXFP4_GROUP:
        mantissas, exponents = torch.frexp(scales)
        biased = exponents - 1 + _EXPONENT_BIAS
        if bool(((mantissas == 0.5) & (biased >= 0) & (biased < 1 << _EXPONENT_BITS)).all()):
            padded = F.pad(biased, (0, -biased.shape[1] % _EXPONENTS_IN_WORD)).to(torch.uint8)
            return Scales.EXPONENTS, padded.view(torch.int32).T.contiguous(), 1.0
    return Scales.FLOAT32, scales.contiguous().view(torch.int32).T.contiguous(), 1.0


@triton.jit
def values_of(words, SLOT: tl.constexpr, KIND: tl.constexpr):
    """The codes in one slot of words, as float32 divided by a power of two (scales_of multiplies by it).

    An integer is the end of a float32's exponent and its mantissa: up to 2^24 such bit patterns are evenly spaced,
    through the subnormal numbers. Of a small float exponent and mantissa go to those of a float32, subnormal ones, too.
    The sign that a shift to the right draws in lies outside the masks, or is the sign of the value.
    """
    if KIND == 0:  # to bit 20: u / 2^129
        moved = words << (20 - 4 * SLOT) if SLOT < 6 else words >> (4 * SLOT - 20)
        bits = moved & 0x00F00000
    elif KIND == 1:  # to bit 16: u / 2^133
        moved = words << (16 - 8 * SLOT) if SLOT < 3 else words >> (8 * SLOT - 16)
        bits = moved & 0x00FF0000
    elif KIND == 2:  # exponent and mantissa to bit 20: divided by 2^120
        bits = (words << (24 - 8 * SLOT)) >> 4 & -0x78100000
    else:  # to bit 22: divided by 2^126
        bits = (words << (28 - 4 * SLOT)) >> 6 & -0x7E400000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def scales_of(
    words, KIND: tl.constexpr, SCALES: tl.constexpr, ZERO: tl.constexpr, HAS_SMALL: tl.constexpr, BYTE: tl.constexpr
):
    """(scale, addend): weights are values_of(...) * scale + addend, of small floats without the addend; where scales
    are not small, values_of(...) * 2^100 * scale + addend. BYTE: of an exponent in its word.

    Nothing here is a number of the program: the compiler decodes in the layout of the tensor cores only what it can
    trace back to loads and constants.
    """
    # 2^29, 2^33, 2^20, 2^26: the power of values_of without 2^100, which float32 has not room for in all scales.
    INTEGER_UNIT: tl.constexpr = 536870912.0 if KIND == 0 else 8589934592.0
    UNIT: tl.constexpr = INTEGER_UNIT if KIND < 2 else 1048576.0 if KIND == 2 else 67108864.0
    if SCALES == 1:
        scale = (words & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        zero = (words >> 16 & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        addend = -zero * scale
    elif SCALES == 2:
        scale = ((words >> 8 * BYTE & 0xFF) << 23).to(tl.float32, bitcast=True)
        addend = scale
    else:
        scale = words.to(tl.float32, bitcast=True)
        addend = scale * -ZERO
    scale *= UNIT
    if HAS_SMALL:
        scale *= 1.2676506002282294e30
    return scale, addend


@triton.jit
def weights_of(words, scale, addend, SLOT: tl.constexpr, KIND: tl.constexpr, HAS_SMALL: tl.constexpr):
    """Weights of one slot of words [rows, WORDS] in float32. scale, addend: as from scales_of, to be broadcast."""
    values = values_of(words, SLOT, KIND)
    if not HAS_SMALL:
        values *= 1.2676506002282294e30
    weights = values * scale
    if KIND < 2:
        weights += addend
    return weights


@triton.jit
def group_scales(
    scales_ptr,
    rows,
    first_input,
    IN_BLOCK: tl.constexpr,
    NUM_ROWS: tl.constexpr,
    READ: tl.constexpr,
    KIND: tl.constexpr,
    SCALES: tl.constexpr,
    ZERO: tl.constexpr,
    HAS_SMALL: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Scale and addend of READ inputs from first_input on, a multiple of READ: of rows [R] [R, 1] where all of these
    inputs are in one group, else [R, READ]. NUM_ROWS: of the whole matrix, whose scales are [groups, NUM_ROWS].
    IN_BLOCK: the first input of the slot in its block."""
    IN_WORD: tl.constexpr = 4 if SCALES == 2 else 1
    LAST: tl.constexpr = (SIZE - 1) // GROUP
    if GROUP % READ == 0:
        group = tl.minimum(first_input // GROUP, LAST)  # beyond the inputs x is zero
        words = tl.load(scales_ptr + group // IN_WORD * NUM_ROWS + rows)[:, None]
    else:
        inputs = first_input + tl.arange(0, READ)
        group = tl.minimum(inputs // GROUP, LAST)[None, :]
        words = tl.load(scales_ptr + group // IN_WORD * NUM_ROWS + rows[:, None])
    # Blocks are multiples of four groups of exponents.
    return scales_of(words, KIND, SCALES, ZERO, HAS_SMALL, IN_BLOCK // GROUP % 4)
