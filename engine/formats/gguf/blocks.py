"""The data types of GGUF tensors: blocks of adjacent elements, and how they become quantised matrices.

Layouts are those of ggml-common.h. B = blocks of a row, O = rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from engine.formats.gguf.iq3_book import iq3_codes
from engine.formats.mxfp4 import MXFP4_BOOK
from engine.kernels.quantised import QuantisedMatrix

#: bytes [O, B, bytes of a block] -> matrix [O, elements]
Decode = Callable[[torch.Tensor], QuantisedMatrix]

_SUPER = 256  #: elements of a K block
_LEAST = 1e-30


@dataclass(frozen=True, slots=True)
class Block:
    """A data type: so many elements in so many bytes."""

    name: str
    size: int
    num_bytes: int
    dtype: torch.dtype | None = None  #: of plain elements
    decode: Decode | None = None  #: None: plain elements


def _halves(part: torch.Tensor) -> torch.Tensor:
    """bytes [O, B, 2 n] -> float32 [O, B, n]."""
    return part.contiguous().view(torch.float16).float()


def _scaled(raw: torch.Tensor, codes: torch.Tensor, bits: int, zero: int) -> QuantisedMatrix:
    """A factor in the first two bytes: weights are factor * (code - zero)."""
    return QuantisedMatrix(codes.flatten(1), _halves(raw[..., :2]).flatten(1), bits, zero)


def _shifted(raw: torch.Tensor, codes: torch.Tensor, bits: int) -> QuantisedMatrix:
    """A factor and a minimum in the first four bytes: weights are factor * code + minimum."""
    factors, minima = _halves(raw[..., :4]).unbind(-1)
    return _above(codes.flatten(1), factors, -minima, bits)


def _above(codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, bits: int) -> QuantisedMatrix:
    """scale * code - minimum, as scale * (code - minimum / scale)."""
    # A group whose scale is zero has weights of -minimum: another scale gives them, too, with codes of zero.
    is_zero = scales.abs() < _LEAST
    if bool(is_zero.any()):
        codes = codes.view(*scales.shape, -1).masked_fill(is_zero[..., None], 0).view(codes.shape)
        scales = torch.where(is_zero, minima.abs().clamp(min=_LEAST), scales)
    return QuantisedMatrix(codes, scales, bits, minima / scales)


def _halves_of_bytes(raw: torch.Tensor) -> torch.Tensor:
    """bytes [..., n] -> [..., 2 n]: all lower halves, then all upper halves."""
    return torch.cat((raw & 15, raw >> 4), dim=-1)


def _fifth(raw: torch.Tensor) -> torch.Tensor:
    """bytes [O, B, 4] -> [O, B, 32]: one bit of each of 32 codes, as their fifth bit."""
    return (raw[..., None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten(-2) << 4


def _q4_0(raw: torch.Tensor) -> QuantisedMatrix:
    """A factor, then 32 codes: the first 16 in the lower halves."""
    return _scaled(raw, _halves_of_bytes(raw[..., 2:]), 4, 8)


def _q4_1(raw: torch.Tensor) -> QuantisedMatrix:
    """As Q4_0, with a minimum."""
    return _shifted(raw, _halves_of_bytes(raw[..., 4:]), 4)


def _q5_0(raw: torch.Tensor) -> QuantisedMatrix:
    """As Q4_0, with the fifth bits of all codes before them."""
    return _scaled(raw, _halves_of_bytes(raw[..., 6:]) | _fifth(raw[..., 2:6]), 5, 16)


def _q5_1(raw: torch.Tensor) -> QuantisedMatrix:
    """As Q5_0, with a minimum."""
    return _shifted(raw, _halves_of_bytes(raw[..., 8:]) | _fifth(raw[..., 4:8]), 5)


def _q8_0(raw: torch.Tensor) -> QuantisedMatrix:
    """A factor, then 32 signed codes."""
    return _scaled(raw, raw[..., 2:] ^ 0x80, 8, 128)


def _q2_k(raw: torch.Tensor) -> QuantisedMatrix:
    """Scales (lower halves) and minima (upper halves) of 16 groups, codes of 2 bits, and a factor for each of both."""
    factors = _halves(raw[..., 80:])
    scales, minima = (raw[..., :16] & 15).float(), (raw[..., :16] >> 4).float()
    codes = _in_planes(raw[..., 16:80], 2)
    return _above(codes.flatten(1), (scales * factors[..., :1]).flatten(1), (minima * factors[..., 1:]).flatten(1), 4)


def _q3_k(raw: torch.Tensor) -> QuantisedMatrix:
    """The third bits of all codes, their lower two bits, scales of 16 groups in 6 bits, and a factor."""
    third = raw[..., None, :32] >> torch.arange(8, dtype=torch.uint8)[:, None] & 1  # [O, B, 8, 32]
    codes = _in_planes(raw[..., 32:96], 2) | third.flatten(2) << 2
    high = raw[..., None, 104:108] >> _EVEN_BITS & 3  # [O, B, 4, 4]
    scales = (_halves_of_bytes(raw[..., 96:104]) | high.flatten(2) << 4).float() - 32
    return QuantisedMatrix(codes.flatten(1), (scales * _halves(raw[..., 108:])).flatten(1), 4, 4)


def _q4_k(raw: torch.Tensor) -> QuantisedMatrix:
    """Two factors, scales and minima of 8 groups in 6 bits each, then codes of 4 bits."""
    return _with_minima(raw, _in_planes(raw[..., 16:], 4), 4)


def _q5_k(raw: torch.Tensor) -> QuantisedMatrix:
    """As Q4_K, with the fifth bits of all codes between scales and codes."""
    fifth = raw[..., None, 16:48] >> torch.arange(8, dtype=torch.uint8)[:, None] & 1  # [O, B, 8, 32]
    return _with_minima(raw, _in_planes(raw[..., 48:], 4) | fifth.flatten(2) << 4, 5)


def _q6_k(raw: torch.Tensor) -> QuantisedMatrix:
    """Lower four bits, upper two bits, scales of 16 groups as signed bytes, and a factor."""
    low = _halves_of_bytes(raw[..., :128].unflatten(-1, (2, 64))).flatten(2)
    codes = low | _in_planes(raw[..., 128:192], 2) << 4
    scales = raw[..., 192:208].contiguous().view(torch.int8).float() * _halves(raw[..., 208:])
    return QuantisedMatrix(codes.flatten(1), scales.flatten(1), 6, 32)


def _iq4_nl(raw: torch.Tensor) -> QuantisedMatrix:
    """As Q4_0, with a book of values."""
    matrix = _scaled(raw, _halves_of_bytes(raw[..., 2:]), 4, 0)
    return replace(matrix, book=torch.tensor(_IQ4_VALUES))


def _iq4_xs(raw: torch.Tensor) -> QuantisedMatrix:
    """A factor, the upper two bits of the scales of 8 groups, their lower four bits, and codes as in IQ4_NL."""
    high = (raw[..., 2:4, None] >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8) & 3).flatten(2)
    low = torch.stack((raw[..., 4:8] & 15, raw[..., 4:8] >> 4), dim=-1).flatten(2)
    scales = ((low | high << 4).float() - 32) * _halves(raw[..., :2])
    codes = _halves_of_bytes(raw[..., 8:].unflatten(-1, (8, 16))).flatten(1)
    return QuantisedMatrix(codes, scales.flatten(1), 4, book=torch.tensor(_IQ4_VALUES))


def _iq3_s(raw: torch.Tensor) -> QuantisedMatrix:
    """A factor, points of four magnitudes in 8 bits and a ninth one, signs, and scales of 8 groups in 4 bits: weights
    are odd numbers from -15 to 15, so that codes have 4 bits."""
    bits = torch.arange(8, dtype=torch.uint8)
    ninth = (raw[..., 66:74, None] >> bits & 1).flatten(2).long()
    magnitudes = iq3_codes()[raw[..., 2:66].long() | ninth << 8].flatten(2)  # [O, B, 256], from 0 to 7
    is_negative = (raw[..., 74:106, None] >> bits & 1).flatten(2).bool()
    codes = torch.where(is_negative, 7 - magnitudes, magnitudes + 8)
    scales = torch.stack((raw[..., 106:] & 15, raw[..., 106:] >> 4), dim=-1).flatten(2)
    scales = (scales.float() * 2 + 1) * _halves(raw[..., :2])
    return QuantisedMatrix(codes.flatten(1), scales.flatten(1), 4, book=torch.arange(-15.0, 16.0, 2.0))


def _mxfp4(raw: torch.Tensor) -> QuantisedMatrix:
    """The exponent of the scale, then 32 codes as in Q4_0."""
    # As llama.cpp: no NaN; through float64, since float32 computes no exponents below -126 exactly.
    scales = torch.exp2(raw[..., 0].double() - 127).float()
    return QuantisedMatrix(_halves_of_bytes(raw[..., 1:]).flatten(1), scales, 4, book=MXFP4_BOOK)


def _in_planes(raw: torch.Tensor, bits: int) -> torch.Tensor:
    """bytes [O, B, n] -> codes [O, B, 8 / bits n]: of 32 adjacent bytes each the lowest bits, then the next ones."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)[:, None]
    planes: torch.Tensor = raw.unflatten(-1, (-1, 1, 32)) >> shifts & (1 << bits) - 1
    return planes.flatten(2)


def _with_minima(raw: torch.Tensor, codes: torch.Tensor, bits: int) -> QuantisedMatrix:
    """Weights are factor * scale * code - factor * minimum; scales and minima of 6 bits are in bytes 4 to 15."""
    factors = _halves(raw[..., :4])
    first, second, last = raw[..., 4:16].unflatten(-1, (3, 4)).unbind(-2)
    scales = torch.cat((first & 63, last & 15 | (first >> 2) & 48), dim=-1).float() * factors[..., :1]
    minima = torch.cat((second & 63, last >> 4 | (second >> 2) & 48), dim=-1).float() * factors[..., 1:]
    return _above(codes.flatten(1), scales.flatten(1), minima.flatten(1), bits)


_EVEN_BITS = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
_IQ4_VALUES = (
    *(-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0),
    *(1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0),
)

#: By ggml's number.
BLOCKS = {
    0: Block("F32", 1, 4, torch.float32),
    1: Block("F16", 1, 2, torch.float16),
    30: Block("BF16", 1, 2, torch.bfloat16),
    2: Block("Q4_0", 32, 18, decode=_q4_0),
    3: Block("Q4_1", 32, 20, decode=_q4_1),
    6: Block("Q5_0", 32, 22, decode=_q5_0),
    7: Block("Q5_1", 32, 24, decode=_q5_1),
    8: Block("Q8_0", 32, 34, decode=_q8_0),
    10: Block("Q2_K", _SUPER, 84, decode=_q2_k),
    11: Block("Q3_K", _SUPER, 110, decode=_q3_k),
    12: Block("Q4_K", _SUPER, 144, decode=_q4_k),
    13: Block("Q5_K", _SUPER, 176, decode=_q5_k),
    14: Block("Q6_K", _SUPER, 210, decode=_q6_k),
    20: Block("IQ4_NL", 32, 18, decode=_iq4_nl),
    21: Block("IQ3_S", _SUPER, 110, decode=_iq3_s),
    23: Block("IQ4_XS", _SUPER, 136, decode=_iq4_xs),
    39: Block("MXFP4", 32, 17, decode=_mxfp4),
}

#: Types that are not served, by ggml's number: for messages.
OTHER_TYPES = {
    **{9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 22: "IQ2_S", 24: "I8"},
    **{25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4", 41: "Q1_0"},
}
