"""AWQ (Lin et al. 2023) in the order of its "gemm" kernels: codes of 4 bits along the outputs."""

from dataclasses import dataclass
from typing import Self

import torch

from engine.errors import CheckpointError
from engine.formats.format import FLOATS, Tensors, checked_group_size, simplified, unpacked
from engine.kernels.quantised import QuantisedMatrix
from engine.models.config_reader import ConfigReader

#: Where a word has the code of each of its eight outputs: it holds those of outputs 0, 2, 4, 6, 1, 3, 5, 7.
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
_PER_WORD = len(_PLACES)


@dataclass(frozen=True, slots=True)
class Awq:
    """The format, with the settings of a checkpoint."""

    group_size: int  #: -1: all inputs
    has_zeros: bool

    @classmethod
    def from_config(cls, config: ConfigReader) -> Self:
        """Raises CheckpointError for settings that are not served."""
        bits = config.get("bits", int, config.get("w_bit", int, 4))
        if bits != 4:
            raise CheckpointError(f"an AWQ checkpoint of {bits} bits is not served, only 4 bits")
        version = config.get("version", str, "gemm").lower()
        if version != "gemm":
            raise CheckpointError(f"an AWQ checkpoint of version {version!r} is not served, only 'gemm'")
        size = config.get("group_size", int, config.get("q_group_size", int, 128))
        return cls(size, config.get("zero_point", bool, True))

    @property
    def name(self) -> str:
        """For logs and messages."""
        return "AWQ 4 bits"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether it has codes of its own."""
        return f"{layer}.qweight" in tensors

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """Codes and zero points lie along the outputs, in the same order."""
        if outputs % _PER_WORD:
            raise CheckpointError(f"{layer}: {outputs} outputs do not fill whole AWQ words")
        groups = inputs // checked_group_size(self.group_size, inputs, layer)
        words = tensors.read(f"{layer}.qweight", (inputs, outputs // _PER_WORD), torch.int32)
        scales = tensors.read(f"{layer}.scales", (groups, outputs), *FLOATS).float()
        zeros: torch.Tensor | int = 8
        if self.has_zeros:
            zero_words = tensors.read(f"{layer}.qzeros", (groups, outputs // _PER_WORD), torch.int32)
            zeros = simplified(_in_order(zero_words).T)
        return QuantisedMatrix(_in_order(words).T.contiguous(), scales.T.contiguous(), 4, zeros)


def _in_order(words: torch.Tensor) -> torch.Tensor:
    """int32 [R, O / 8] -> uint8 [R, O]."""
    return unpacked(words, 4).view(len(words), -1, _PER_WORD)[:, :, list(_PLACES)].flatten(1)
