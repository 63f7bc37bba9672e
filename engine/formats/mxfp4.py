"""MXFP4 (OCP Microscaling 1.0), as gpt-oss stores its experts: 4-bit floats (e2m1) in groups of 32, whose scales are
powers of two.

All experts of a layer are one tensor: `name`_blocks [experts, outputs, groups, 16] with two codes in a byte, and
`name`_scales [experts, outputs, groups], exponents with 127 added.
"""

from dataclasses import dataclass

import torch

from engine.errors import CheckpointError
from engine.formats.format import Tensors
from engine.kernels.quantised import QuantisedMatrix

_GROUP = 32
_NAN = 255
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


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
        """All experts one under another: outputs counts those of all."""
        if inputs % _GROUP:
            raise CheckpointError(f"{layer}: MXFP4 groups of {_GROUP} do not divide its {inputs} inputs")
        groups = inputs // _GROUP
        found = tensors.shape_of(f"{layer}_blocks")
        experts = found[0] if found else 0
        if experts < 1 or outputs % experts:
            raise CheckpointError(f"tensor {layer}_blocks has {experts} experts, which do not divide {outputs} outputs")
        shape = (experts, outputs // experts, groups)
        blocks = tensors.read(f"{layer}_blocks", (*shape, _GROUP // 2), torch.uint8).reshape(outputs, inputs // 2)
        exponents = tensors.read(f"{layer}_scales", shape, torch.uint8).reshape(outputs, groups)
        if bool((exponents == _NAN).any()):
            raise CheckpointError(f"tensor {layer}_scales holds NaN")
        codes = torch.stack((blocks & 15, blocks >> 4), dim=2).flatten(1)
        scales = torch.exp2(exponents.float() - 127)
        values = torch.tensor(_VALUES)
        return QuantisedMatrix(codes, scales, 4, book=torch.cat((values, -values)))
