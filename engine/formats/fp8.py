"""8-bit floats (e4m3) with scales per tensor, per output, or per block of outputs and inputs."""

import math
from dataclasses import dataclass
from typing import Self

import torch

from engine.errors import CheckpointError
from engine.formats.format import FLOATS, Tensors
from engine.kernels.quantised import QuantisedMatrix
from engine.models.config_reader import ConfigReader

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class Fp8:
    """The format `fp8` of transformers, vLLM and DeepSeek, with the settings of a checkpoint."""

    block: tuple[int, int] | None  #: outputs and inputs that share a scale; None: one scale for the tensor

    @classmethod
    def from_config(cls, config: ConfigReader) -> Self:
        """Raises CheckpointError for settings that are not served."""
        config.expect("fmt", "e4m3", "float8_e4m3fn")
        config.expect("activation_scheme", "dynamic", "static")
        return cls(read_block(config.optional("weight_block_size", list)))

    @property
    def name(self) -> str:
        """For logs and messages."""
        return "FP8"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether its weight is of that type."""
        return tensors.dtype_of(f"{layer}.weight") == FP8

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """The scales are called weight_scale_inv or weight_scale; the weight is multiplied by either."""
        name = f"{layer}.weight_scale_inv"
        if name not in tensors:
            name = f"{layer}.weight_scale"
        tensors.ignore(f"{layer}.input_scale")
        tensors.ignore(f"{layer}.activation_scale")
        return read_fp8(tensors, layer, outputs, inputs, name, self.block)


def read_fp8(
    tensors: Tensors, layer: str, outputs: int, inputs: int, scale_name: str, block: tuple[int, int] | None
) -> QuantisedMatrix:
    """The matrix of `layer`.weight and its scales: of blocks, or, without blocks, one for each output or for all."""
    codes = tensors.read(f"{layer}.weight", (outputs, inputs), FP8).view(torch.uint8)
    if bool(((codes & 0x7F) == 0x7F).any()):
        raise CheckpointError(f"tensor {layer}.weight holds NaN")
    if block is None:
        found = tensors.shape_of(scale_name) if scale_name in tensors else ()
        shape = found if found in ((), (1,), (1, 1), (outputs,)) else (outputs, 1)
        scales = tensors.read(scale_name, shape, *FLOATS).float().reshape(-1, 1).expand(outputs, 1)
    else:
        rows, columns = block
        blocks = tensors.read(scale_name, (-(-outputs // rows), -(-inputs // columns)), *FLOATS).float()
        size = math.gcd(columns, inputs)  # the last block may be a part
        spread = blocks.repeat_interleave(min(columns, inputs) // size, dim=1)[:, : inputs // size]
        scales = spread.repeat_interleave(min(rows, outputs), dim=0)[:outputs]
    book = torch.arange(256, dtype=torch.uint8).view(FP8).float().nan_to_num(0.0)
    return QuantisedMatrix(codes, scales.contiguous(), 8, book=book)


def read_block(sizes: list[object] | None) -> tuple[int, int] | None:
    """The block of a list of two sizes. Raises CheckpointError."""
    match sizes:
        case None:
            return None
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise CheckpointError(f"blocks of FP8 scales must be two positive numbers, not {str(sizes)[:80]}")
