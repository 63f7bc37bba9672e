"""Writes quantised layers as the definitions of the formats say, code by code, and the weights that they stand for."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

#: Tensors of a layer by the end of their names, and its weights [out, in].
Packed = tuple[dict[str, torch.Tensor], torch.Tensor]
GROUP = 16


@dataclass(frozen=True)
class Codes:
    """A matrix rounded by groups of inputs, as plain numbers."""

    codes: NDArray[np.int64]  #: [out, in]
    scales: NDArray[np.float32]  #: [out, groups], each a float16
    zeros: NDArray[np.int64]  #: [out, groups]
    group_of: NDArray[np.int64]  #: [in]

    @property
    def weights(self) -> torch.Tensor:
        steps = self.codes - self.zeros[:, self.group_of]
        return torch.from_numpy((steps * self.scales[:, self.group_of]).astype(np.float32))


def rounded(weight: torch.Tensor, bits: int, *, symmetric: bool, group: int = GROUP, shuffled: bool = False) -> Codes:
    """group -1: all inputs. shuffled: inputs belong to groups at random."""
    w = weight.double().numpy()
    outputs, inputs = w.shape
    size = inputs if group == -1 else group
    group_of = np.arange(inputs) // size
    if shuffled:
        np.random.default_rng(inputs).shuffle(group_of)
    top = (1 << bits) - 1
    groups = inputs // size
    scales, zeros = np.zeros((outputs, groups), np.float32), np.zeros((outputs, groups), np.int64)
    for g in range(groups):
        part = w[:, group_of == g]
        if symmetric:
            scale = np.abs(part).max(axis=1) / (top // 2)
            zeros[:, g] = (top + 1) // 2
        else:
            low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
            scale = (high - low) / top
            zeros[:, g] = np.clip(np.round(-low / scale), 0, top)
        scales[:, g] = scale.astype(np.float16)
    codes = np.clip(np.round(w / scales[:, group_of]) + zeros[:, group_of], 0, top).astype(np.int64)
    return Codes(codes, scales, zeros, group_of)


def words_of(codes: NDArray[np.int64], bits: int) -> torch.Tensor:
    """[R, n] -> int32 [R, ceil(n bits / 32)], the first code in the lowest bits."""
    per_word = 32 // bits
    words = np.zeros((len(codes), -(-codes.shape[1] // per_word)), np.uint32)
    for i in range(codes.shape[1]):
        words[:, i // per_word] |= codes[:, i].astype(np.uint32) << np.uint32(bits * (i % per_word))
    return torch.from_numpy(words.view(np.int32))


def gptq(
    weight: torch.Tensor,
    *,
    bits: int = 4,
    symmetric: bool = True,
    shuffled: bool = False,
    group: int = GROUP,
    v2: bool = False,
) -> Packed:
    """Codes along the inputs; stored zero points are one less in the first version of the format."""
    q = rounded(weight, bits, symmetric=symmetric, group=group, shuffled=shuffled)
    stored = q.zeros if v2 else np.maximum(q.zeros - 1, 0)
    q = replace(q, zeros=stored + (0 if v2 else 1))
    return {
        "qweight": words_of(q.codes, bits).T.contiguous(),
        "qzeros": words_of(stored.T, bits),
        "scales": torch.from_numpy(q.scales).T.half().contiguous(),
        "g_idx": torch.from_numpy(q.group_of.astype(np.int32)),
    }, q.weights


def awq(weight: torch.Tensor) -> Packed:
    """Codes along the outputs; a word holds those of outputs 0, 2, 4, 6, 1, 3, 5, 7 from its lowest bits on."""
    q = rounded(weight, 4, symmetric=False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def packed(codes: NDArray[np.int64]) -> torch.Tensor:
        places = [8 * (i // 8) + order[i % 8] for i in range(codes.shape[1])]
        return words_of(codes[:, places], 4)

    return {
        "qweight": packed(q.codes.T),
        "qzeros": packed(q.zeros.T),
        "scales": torch.from_numpy(q.scales).T.half().contiguous(),
    }, q.weights


def pack_quantized(
    weight: torch.Tensor, *, bits: int = 4, symmetric: bool = True, group: int = GROUP, shuffled: bool = False
) -> Packed:
    """Codes along the inputs; zero points along the outputs."""
    q = rounded(weight, bits, symmetric=symmetric, group=group, shuffled=shuffled)
    tensors = {
        "weight_packed": words_of(q.codes, bits),
        "weight_scale": torch.from_numpy(q.scales).half(),
        "weight_shape": torch.tensor(weight.shape),
    }
    if not symmetric:
        tensors["weight_zero_point"] = words_of(q.zeros.T, bits).T.contiguous()
    if shuffled:
        tensors["weight_g_idx"] = torch.from_numpy(q.group_of.astype(np.int32))
    return tensors, q.weights


def int_quantized(weight: torch.Tensor, *, one_scale: bool = False) -> Packed:
    """int8 with a scale for each output, or one for all."""
    scales = weight.abs().amax(dim=1, keepdim=True) / 127
    if one_scale:
        scales = scales.max().reshape(1)
    codes = (weight / scales).round().to(torch.int8)
    return {"weight": codes, "weight_scale": scales}, codes.float() * scales


def fp8(weight: torch.Tensor, *, block: tuple[int, int] | None, scale_name: str) -> Packed:
    """e4m3 with a scale for each block of outputs and inputs; None: for the tensor."""
    rows, columns = weight.shape if block is None else block
    scales = torch.zeros(-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
    codes = torch.zeros(weight.shape, dtype=torch.float8_e4m3fn)
    back = torch.zeros(weight.shape)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            scales[i, j] = weight[part].abs().max() / 448
            codes[part] = (weight[part] / scales[i, j]).to(torch.float8_e4m3fn)
            back[part] = codes[part].float() * scales[i, j]
    return {"weight": codes, scale_name: scales.reshape(()) if block is None else scales}, back


def fp8_by_output(weight: torch.Tensor) -> Packed:
    """e4m3 with a scale for each output."""
    scales = weight.abs().amax(dim=1, keepdim=True) / 448
    codes = (weight / scales).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scales}, codes.float() * scales


def mxfp4(stack: torch.Tensor) -> Packed:
    """stack [experts, out, in]: e2m1 in groups of 32 with an exponent, even columns in the low halves of bytes."""
    values = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    values = np.concatenate((values, -values))
    experts, outputs, inputs = stack.shape
    blocks = np.zeros((experts, outputs, inputs // 32, 16), np.uint8)
    scales = np.zeros((experts, outputs, inputs // 32), np.uint8)
    back = np.zeros(stack.shape, np.float32)
    for place in np.ndindex(scales.shape):
        columns = slice(32 * place[2], 32 * place[2] + 32)
        group = stack[(*place[:2], columns)].double().numpy()
        exponent = int(np.ceil(np.log2(np.abs(group).max() / 6.0)))
        codes = np.abs(group[:, None] / 2.0**exponent - values).argmin(axis=1)
        blocks[place] = codes[::2] + 16 * codes[1::2]
        scales[place] = exponent + 127
        back[(*place[:2], columns)] = values[codes] * 2.0**exponent
    return {"blocks": torch.from_numpy(blocks), "scales": torch.from_numpy(scales)}, torch.from_numpy(back)


#: The levels of NF4 (QLoRA, appendix E), and those of FP4, whose sign is the highest bit of a code.
NF4 = (
    -1.0,
    *(-0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
    *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_FP4 = (0.0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
FP4 = (*_FP4, *(-value for value in _FP4))


def bitsandbytes_4bit(
    weight: torch.Tensor, *, kind: str = "nf4", block: int = 64, nested: bool = False, nested_block: int = 256
) -> Packed:
    """Blocks run over the rows; the first of two codes is in the high half of a byte. nested: 8-bit scales, rounded to
    a book of 256 levels around their mean."""
    book = torch.tensor(NF4 if kind == "nf4" else FP4)
    flat = weight.flatten()
    count = -(-len(flat) // block)
    parts = torch.nn.functional.pad(flat, (0, count * block - len(flat))).view(count, block)
    scales = parts.abs().amax(dim=1)
    state: dict[str, object] = {"quant_type": kind, "blocksize": block, "dtype": "float32", "shape": [*weight.shape]}
    tensors = {"weight.absmax": scales, "weight.quant_map": book}
    if nested:
        levels, offset = torch.linspace(-1, 1, 256), float(scales.mean())
        rows = -(-count // nested_block)
        centred = torch.nn.functional.pad(scales - offset, (0, rows * nested_block - count)).view(rows, nested_block)
        largest = centred.abs().amax(dim=1)
        codes = (centred[..., None] / largest[:, None, None] - levels).abs().argmin(dim=-1)
        scales = (levels[codes] * largest[:, None]).flatten()[:count] + offset
        tensors |= {
            "weight.absmax": codes.flatten()[:count].to(torch.uint8),
            "weight.nested_absmax": largest,
            "weight.nested_quant_map": levels,
        }
        state |= {"nested_blocksize": nested_block, "nested_dtype": "float32", "nested_offset": offset}
    nearest = (parts[..., None] / scales[:, None, None] - book).abs().argmin(dim=-1)
    weights = (book[nearest] * scales[:, None]).flatten()[: len(flat)].view(weight.shape)
    codes = torch.nn.functional.pad(nearest.flatten()[: len(flat)], (0, len(flat) % 2)).view(-1, 2).to(torch.uint8)
    text = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    tensors |= {"weight": (codes[:, :1] << 4) | codes[:, 1:], f"weight.quant_state.bitsandbytes__{kind}": text}
    return tensors, weights


def bitsandbytes_int8(weight: torch.Tensor) -> Packed:
    """Each output is rounded to 127 steps of its largest weight."""
    largest = weight.abs().amax(dim=1)
    codes = (weight * (127 / largest[:, None])).round().to(torch.int8)
    tensors = {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return tensors, codes.float() * (largest[:, None] / 127)


Packer = Callable[[torch.Tensor], Packed]
