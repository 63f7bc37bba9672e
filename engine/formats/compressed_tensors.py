"""compressed-tensors, the format of llm-compressor and many vLLM checkpoints: integers of 4 or 8 bits, packed or not,
and 8-bit floats. How activations are to be rounded is not read: the operators round them in their own way, or not at
all.
"""

from dataclasses import dataclass
from typing import Self

import torch

from engine.errors import CheckpointError
from engine.formats.format import FLOATS, Tensors, checked_group_size, order_of, simplified, unpacked
from engine.formats.fp8 import FP8, read_block, read_fp8
from engine.kernels.quantised import QuantisedMatrix
from engine.models.config_reader import ConfigReader

_STRATEGIES = ("tensor", "channel", "group", "block")
_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")


@dataclass(frozen=True, slots=True)
class CompressedTensors:
    """The format, with the settings of a checkpoint."""

    bits: int
    group_size: int  #: -1: all inputs
    is_float: bool
    is_symmetric: bool
    has_one_scale: bool  #: for all outputs
    block: tuple[int, int] | None  #: of floats: outputs and inputs that share a scale

    @classmethod
    def from_config(cls, config: ConfigReader) -> Self:
        """Raises CheckpointError for settings that are not served."""
        config.expect("quantization_status", "compressed", "frozen")
        config.expect("kv_cache_scheme", None)
        if (sparsity := config.section("sparsity_config")) is not None:
            sparsity.expect("format", "dense")
        config.expect("format", *_FORMATS)
        groups = config.require("config_groups", dict)
        schemes = [_weight_scheme(name, value) for name, value in groups.items()]
        if not schemes:
            raise CheckpointError("config.json: config_groups of compressed-tensors are empty")
        if any(scheme != schemes[0] for scheme in schemes):
            raise CheckpointError("a compressed-tensors checkpoint whose groups have different weights is not served")
        return cls(*schemes[0])

    @property
    def name(self) -> str:
        """For logs and messages."""
        return f"compressed-tensors {'FP8' if self.is_float else f'{self.bits} bits'}"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether it has codes of its own, or a weight that is of 8 bits."""
        return f"{layer}.weight_packed" in tensors or tensors.dtype_of(f"{layer}.weight") in (FP8, torch.int8)

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """Packed or not is seen by the tensors' names."""
        tensors.ignore(f"{layer}.input_scale")
        tensors.ignore(f"{layer}.input_zero_point")
        if self.is_float:
            return read_fp8(tensors, layer, outputs, inputs, f"{layer}.weight_scale", self.block)
        groups = inputs // checked_group_size(self.group_size, inputs, layer)
        half = 1 << (self.bits - 1)
        is_packed = f"{layer}.weight_packed" in tensors
        if is_packed:
            per_word = 32 // self.bits
            words = tensors.read(f"{layer}.weight_packed", (outputs, -(-inputs // per_word)), torch.int32)
            codes = unpacked(words, self.bits)[:, :inputs].contiguous()
            if f"{layer}.weight_shape" in tensors:
                shape = tensors.read(f"{layer}.weight_shape", (2,), torch.int64, torch.int32).tolist()
                if shape != [outputs, inputs]:
                    raise CheckpointError(f"{layer}.weight_shape is {shape}, the config says {[outputs, inputs]}")
        else:
            codes = tensors.read(f"{layer}.weight", (outputs, inputs), torch.int8).view(torch.uint8) ^ 0x80
            half = 128
        scales = self._scales(tensors, layer, outputs, groups)
        zeros: torch.Tensor | int = half
        if not self.is_symmetric:
            zeros = simplified(self._zeros(tensors, layer, outputs, groups, is_packed=is_packed))
        order = self._order(tensors, layer, inputs, inputs // groups)
        if order is not None:
            codes = codes[:, order]
        return QuantisedMatrix(codes, scales, self.bits if is_packed else 8, zeros, order=order)

    def _scales(self, tensors: Tensors, layer: str, outputs: int, groups: int) -> torch.Tensor:
        name = f"{layer}.weight_scale"
        shape: tuple[int, ...] = (outputs, groups)
        if self.has_one_scale:
            shape = tensors.shape_of(name) if name in tensors and tensors.shape_of(name) in ((), (1, 1)) else (1,)
        scales = tensors.read(name, shape, *FLOATS).float().reshape(-1, groups)
        return scales.expand(outputs, groups).contiguous()

    def _zeros(self, tensors: Tensors, layer: str, outputs: int, groups: int, *, is_packed: bool) -> torch.Tensor:
        """[outputs, groups], as codes: signed numbers plus half of their range."""
        name = f"{layer}.weight_zero_point"
        if is_packed and tensors.dtype_of(name) == torch.int32:
            per_word = 32 // self.bits
            words = tensors.read(name, (-(-outputs // per_word), groups), torch.int32)
            return unpacked(words.T, self.bits).T[:outputs].float()
        shape = (1,) if self.has_one_scale else (outputs, groups)
        signed = tensors.read(name, shape, torch.int8).float().reshape(-1, groups)
        return (signed + (1 << (self.bits - 1 if is_packed else 7))).expand(outputs, groups)

    def _order(self, tensors: Tensors, layer: str, inputs: int, size: int) -> torch.Tensor | None:
        """The inputs by group; None: they are already."""
        name = f"{layer}.weight_g_idx"
        if name not in tensors:
            return None
        return order_of(tensors.read(name, (inputs,), torch.int32, torch.int64), size, name)


def _weight_scheme(name: str, values: object) -> tuple[int, int, bool, bool, bool, tuple[int, int] | None]:
    """The fields of CompressedTensors."""
    if not isinstance(values, dict) or not isinstance(values.get("weights"), dict):
        raise CheckpointError(f"config.json: {name} of compressed-tensors has no weights")
    config = ConfigReader(values["weights"], f"config.json: weights of {name}")
    bits, kind = config.require("num_bits", int), config.get("type", str, "int")
    if (kind, bits) not in (("int", 4), ("int", 8), ("float", 8)):
        raise CheckpointError(f"compressed-tensors weights of type {kind!r} and {bits} bits are not served")
    config.expect("strategy", *_STRATEGIES)
    config.expect("dynamic", False)
    strategy = config.get("strategy", str, "tensor" if config.optional("group_size", int) is None else "group")
    is_float = kind == "float"
    if (strategy == "group" and is_float) or (strategy == "block" and not is_float):
        raise CheckpointError(f"compressed-tensors weights of type {kind!r} by {strategy} are not served")
    group_size = config.require("group_size", int) if strategy == "group" else -1
    block = read_block(config.require("block_structure", list)) if strategy == "block" else None
    return bits, group_size, is_float, config.get("symmetric", bool, True), strategy == "tensor", block
