"""The data types of GGUF tensors: blocks of adjacent elements, and how they become quantised matrices.

Layouts are those of ggml-common.h. B = blocks of a row, O = rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

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


def _q4_0(raw: torch.Tensor) -> QuantisedMatrix:
    """A scale, then 32 codes: the first 16 in the lower halves."""
    codes = torch.cat((raw[..., 2:] & 15, raw[..., 2:] >> 4), dim=-1)
    return QuantisedMatrix(codes.flatten(1), _halves(raw[..., :2]).flatten(1), 4, 8)


def _q8_0(raw: torch.Tensor) -> QuantisedMatrix:
    """A scale, then 32 signed codes."""
    return QuantisedMatrix((raw[..., 2:] ^ 0x80).flatten(1), _halves(raw[..., :2]).flatten(1), 8, 128)


def _q4_k(raw: torch.Tensor) -> QuantisedMatrix:
    """Two factors, scales and minima of 8 groups in 6 bits each, then codes of 4 bits."""
    return _with_minima(raw, _nibbles(raw[..., 16:]), 4)


def _q5_k(raw: torch.Tensor) -> QuantisedMatrix:
    """As Q4_K, with the fifth bits of all codes between scales and codes."""
    bits = torch.arange(8, dtype=torch.uint8)
    fifth = (raw[..., None, 16:48] >> bits[:, None]) & 1  # [O, B, 8, 32]
    return _with_minima(raw, _nibbles(raw[..., 48:]) | fifth.flatten(2) << 4, 5)


def _q6_k(raw: torch.Tensor) -> QuantisedMatrix:
    """Lower four bits, upper two bits, scales of 16 groups as signed bytes, and a factor."""
    low = raw[..., :128].unflatten(-1, (2, 64))
    high = raw[..., 128:192].unflatten(-1, (2, 1, 32)) >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None] & 3
    codes = torch.cat((low & 15, low >> 4), dim=-1).flatten(2) | high.flatten(2) << 4
    scales = raw[..., 192:208].contiguous().view(torch.int8).float() * _halves(raw[..., 208:])
    return QuantisedMatrix(codes.flatten(1), scales.flatten(1), 6, 32)


def _nibbles(raw: torch.Tensor) -> torch.Tensor:
    """bytes [O, B, 128] -> codes [O, B, 256]: 32 lower halves, then the 32 upper halves of the same bytes."""
    parts = raw.unflatten(-1, (4, 1, 32))
    return torch.cat((parts & 15, parts >> 4), dim=-2).flatten(2)


def _with_minima(raw: torch.Tensor, codes: torch.Tensor, bits: int) -> QuantisedMatrix:
    """Weights are factor * scale * code - factor * minimum; scales and minima of 6 bits are in bytes 4 to 15."""
    factors = _halves(raw[..., :4])
    first, second, last = raw[..., 4:16].unflatten(-1, (3, 4)).unbind(-2)
    scales = torch.cat((first & 63, last & 15 | (first >> 2) & 48), dim=-1).float() * factors[..., :1]
    minima = torch.cat((second & 63, last >> 4 | (second >> 2) & 48), dim=-1).float() * factors[..., 1:]
    scales, minima = scales.flatten(1), minima.flatten(1)
    # A group whose scale is zero has weights of -minimum: a tiny scale gives them, too.
    scales = torch.where(scales.abs() < _LEAST, minima.abs().clamp(min=_LEAST) * 1e-5, scales)
    return QuantisedMatrix(codes.flatten(1), scales, bits, minima / scales)


#: By ggml's number.
BLOCKS = {
    0: Block("F32", 1, 4, torch.float32),
    1: Block("F16", 1, 2, torch.float16),
    30: Block("BF16", 1, 2, torch.bfloat16),
    2: Block("Q4_0", 32, 18, decode=_q4_0),
    8: Block("Q8_0", 32, 34, decode=_q8_0),
    12: Block("Q4_K", _SUPER, 144, decode=_q4_k),
    13: Block("Q5_K", _SUPER, 176, decode=_q5_k),
    14: Block("Q6_K", _SUPER, 210, decode=_q6_k),
}
