"""MXFP4 (OCP Microscaling 1.0), as gpt-oss stores its experts: 4-bit floats (e2m1) in groups of 32, whose scales are
powers of two.

All experts of a layer are one tensor: `name`_blocks [experts, outputs, groups, 16] with two codes in a byte, and
`name`_scales [experts, outputs, groups], exponents with 127 added.
"""

from dataclasses import dataclass

import torch

from engine.errors import CheckpointError
from engine.formats.format import Tensors
from engine.kernels.quantised import QuantisedMatrix, QuantisedStack

_GROUP = 32
_NAN = 255
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: The value of each code.
MXFP4_BOOK = torch.tensor((*_VALUES, *(-value for value in _VALUES)))


@dataclass(frozen=True, slots=True)
class Mxfp4:
    """The format; it has no settings."""

    @property
    def name(self) -> str:
        """For logs and messages."""
        return "MXFP4"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether it has blocks of codes."""
        return f"{layer}_blocks" in tensors

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """Raises CheckpointError: tensors of this format are stacks of experts."""
        raise CheckpointError(f"{layer}_blocks is a tensor of several experts, and the model takes one matrix")

    def read_stack(self, tensors: Tensors, layer: str, count: int, outputs: int, inputs: int) -> QuantisedStack:
        """As FormatOfStacks."""
        if inputs % _GROUP:
            raise CheckpointError(f"{layer}: MXFP4 groups of {_GROUP} do not divide its {inputs} inputs")
        shape = (count, outputs, inputs // _GROUP)
        blocks = tensors.read(f"{layer}_blocks", (*shape, _GROUP // 2), torch.uint8)
        exponents = tensors.read(f"{layer}_scales", shape, torch.uint8)
        if bool((exponents == _NAN).any()):
            raise CheckpointError(f"tensor {layer}_scales holds NaN")

        def matrix(index: int) -> QuantisedMatrix:
            own = blocks[index].flatten(1)
            codes = torch.stack((own & 15, own >> 4), dim=2).flatten(1)
            return QuantisedMatrix(codes, torch.exp2(exponents[index].float() - 127), 4, book=MXFP4_BOOK)

        return QuantisedStack(count, matrix)
