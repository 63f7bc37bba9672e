"""bitsandbytes as transformers saves it: 4-bit codes of a code book (NF4 of QLoRA, Dettmers et al. 2023, or FP4), or
8-bit integers with a scale per output (LLM.int8, Dettmers et al. 2022).

4-bit blocks run over the matrix as one long row, two codes in a byte, the first one in its high half. A block's scale
(`absmax`) is a float, or an 8-bit code of a second code book with a scale for each 256 of them. Sizes are in a tensor
that holds JSON.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from engine.errors import CheckpointError
from engine.formats.format import Tensors
from engine.json_files import quoted
from engine.kernels.quantised import QuantisedMatrix
from engine.models.config_reader import ConfigReader

_KINDS = ("nf4", "fp4")
_MAX_STATE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class BitsAndBytes:
    """The format; how a layer is quantised is seen by its tensors."""

    kind: str  #: what config.json says, for logs

    @classmethod
    def from_config(cls, config: ConfigReader) -> Self:
        """Raises CheckpointError for settings that are not served."""
        if config.get("load_in_8bit", bool, False):
            return cls("8 bits")
        kind = config.get("bnb_4bit_quant_type", str, "fp4")
        if kind not in _KINDS:
            raise CheckpointError(f"a bitsandbytes checkpoint of type {quoted(kind)} is not served, only nf4 and fp4")
        return cls(kind.upper())

    @property
    def name(self) -> str:
        """For logs and messages."""
        return f"bitsandbytes {self.kind}"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether its weight is codes of either kind."""
        return _state_name(tensors, layer) is not None or tensors.dtype_of(f"{layer}.weight") == torch.int8

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """A block of 4-bit codes may begin in one row and end in another; its part in a row is a group there."""
        state_name = _state_name(tensors, layer)
        if state_name is None:
            return _read_int8(tensors, layer, outputs, inputs)
        state, weight = _read_state(tensors, state_name), f"{layer}.weight"
        if state.get("shape") != [outputs, inputs]:
            raise CheckpointError(f"{weight} is {quoted(state.get('shape'))}, the config says {[outputs, inputs]}")
        num_codes, block = outputs * inputs, _size(state, "blocksize", state_name)
        packed = tensors.read(weight, (-(-num_codes // 2), 1), torch.uint8).flatten()
        codes = torch.stack((packed >> 4, packed & 15), dim=1).flatten()[:num_codes].view(outputs, inputs)
        scales = _scales(tensors, weight, state, state_name, -(-num_codes // block))
        size = math.gcd(inputs, block)
        block_of = torch.arange(num_codes // size) * size // block
        book = tensors.read(f"{weight}.quant_map", (16,), torch.float32)
        if not bool(book.isfinite().all()):
            raise CheckpointError(f"tensor {weight}.quant_map holds NaN or infinity")
        return QuantisedMatrix(codes.contiguous(), scales[block_of].view(outputs, -1), 4, book=book)


def _read_int8(tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
    tensors.ignore(f"{layer}.weight_format")
    codes = tensors.read(f"{layer}.weight", (outputs, inputs), torch.int8).view(torch.uint8) ^ 0x80
    largest = tensors.read(f"{layer}.SCB", (outputs,), torch.float32)
    return QuantisedMatrix(codes, largest[:, None] / 127, 8, 128)


def _scales(tensors: Tensors, weight: str, state: Mapping[str, Any], state_name: str, num_blocks: int) -> torch.Tensor:
    """float32 [blocks]."""
    if f"{weight}.nested_absmax" not in tensors:
        return tensors.read(f"{weight}.absmax", (num_blocks,), torch.float32)
    block, offset = _size(state, "nested_blocksize", state_name), state.get("nested_offset")
    if not isinstance(offset, int | float) or isinstance(offset, bool):
        raise CheckpointError(f"{state_name}: nested_offset {quoted(offset)} is no number")
    codes = tensors.read(f"{weight}.absmax", (num_blocks,), torch.uint8)
    book = tensors.read(f"{weight}.nested_quant_map", (256,), torch.float32)
    largest = tensors.read(f"{weight}.nested_absmax", (-(-num_blocks // block),), torch.float32)
    return book[codes.long()] * largest[torch.arange(num_blocks) // block] + offset


def _state_name(tensors: Tensors, layer: str) -> str | None:
    names = [f"{layer}.weight.quant_state.bitsandbytes__{kind}" for kind in _KINDS]
    return next((name for name in names if name in tensors), None)


def _read_state(tensors: Tensors, name: str) -> Mapping[str, Any]:
    text = tensors.read(name, tensors.shape_of(name), torch.uint8).flatten()
    if len(text) > _MAX_STATE_BYTES:
        raise CheckpointError(f"{name} has {len(text)} bytes, and at most {_MAX_STATE_BYTES} are read")
    try:
        state = json.loads(bytes(text.tolist()))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is no JSON: {error}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{name} is no JSON object")
    return state


def _size(state: Mapping[str, Any], key: str, name: str) -> int:
    size = state.get(key)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise CheckpointError(f"{name}: {key} {quoted(size)} is no size of a block")
    return size
