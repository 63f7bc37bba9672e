"""GPTQ (Frantar et al. 2022), as AutoGPTQ and GPTQModel write it: codes of 4 or 8 bits, with or without act-order."""

from dataclasses import dataclass
from typing import Self

import torch

from engine.errors import CheckpointError
from engine.formats.format import FLOATS, Tensors, checked_group_size, order_of, simplified, unpacked
from engine.kernels.quantised import QuantisedMatrix
from engine.models.config_reader import ConfigReader

_INT = torch.int32


@dataclass(frozen=True, slots=True)
class Gptq:
    """The format, with the settings of a checkpoint."""

    bits: int
    group_size: int  #: -1: all inputs
    zero_shift: int  #: added to stored zero points: 1 in the first version of the format

    @classmethod
    def from_config(cls, config: ConfigReader) -> Self:
        """Raises CheckpointError for settings that are not served."""
        bits = config.require("bits", int)
        if bits not in (4, 8):
            raise CheckpointError(f"a GPTQ checkpoint of {bits} bits is not served, only 4 and 8 bits")
        config.expect("checkpoint_format", "gptq", "gptq_v2")
        config.expect("pack_dtype", "int32")
        config.expect("dynamic", {})  # settings of single layers
        version = config.get("checkpoint_format", str, "gptq")
        return cls(bits, config.get("group_size", int, -1), 0 if version == "gptq_v2" else 1)

    @property
    def name(self) -> str:
        """For logs and messages."""
        return f"GPTQ {self.bits} bits"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether it has codes of its own."""
        return f"{layer}.qweight" in tensors

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """Codes lie along the inputs, zero points along the outputs."""
        per_word = 32 // self.bits
        if inputs % per_word or outputs % per_word:
            raise CheckpointError(f"{layer}: {outputs} x {inputs} weights do not fill whole GPTQ words")
        size = checked_group_size(self.group_size, inputs, layer)
        groups = inputs // size
        words = tensors.read(f"{layer}.qweight", (inputs // per_word, outputs), _INT)
        zeros = tensors.read(f"{layer}.qzeros", (groups, outputs // per_word), _INT)
        scales = tensors.read(f"{layer}.scales", (groups, outputs), *FLOATS).float()
        codes = unpacked(words.T, self.bits)
        zero_points = unpacked(zeros, self.bits).T.float() + self.zero_shift
        order = self._order(tensors, layer, inputs, size)
        if order is not None:
            codes = codes[:, order]
        return QuantisedMatrix(codes, scales.T.contiguous(), self.bits, simplified(zero_points), order=order)

    def _order(self, tensors: Tensors, layer: str, inputs: int, size: int) -> torch.Tensor | None:
        """The inputs by group; None: they are already."""
        if f"{layer}.g_idx" not in tensors:
            return None
        return order_of(tensors.read(f"{layer}.g_idx", (inputs,), _INT), size, f"{layer}.g_idx")
