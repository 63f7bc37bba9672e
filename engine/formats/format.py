"""What a format of quantised checkpoints is, and what formats share."""

from typing import Protocol, runtime_checkable

import torch

from engine.errors import CheckpointError
from engine.kernels.quantised import QuantisedMatrix, QuantisedStack
from engine.parallel.shard import Shard, Size

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


class Tensors(Protocol):
    """The tensors of a checkpoint, as formats see them."""

    def __contains__(self, name: str) -> bool: ...

    def dtype_of(self, name: str) -> torch.dtype | None:
        """The data type of a tensor; None: there is no tensor of that name, or torch does not know its type."""
        ...

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is there."""
        ...

    def read(self, name: str, shape: tuple[int, ...], *dtypes: torch.dtype) -> torch.Tensor:
        """A tensor of that shape and one of these data types. Raises CheckpointError."""
        ...

    def ignore(self, name: str) -> None:
        """Counts a tensor as used that the model does not need, if it is there."""
        ...


class QuantisedFormat(Protocol):
    """Reads the layers of one format. A layer's name has no ".weight"."""

    @property
    def name(self) -> str:
        """For logs and messages."""
        ...

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether the checkpoint holds this layer in the format; False: as a plain tensor, or not at all."""
        ...

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """The layer's matrix [outputs, inputs]. Raises CheckpointError."""
        ...


@runtime_checkable
class FormatOfStacks(QuantisedFormat, Protocol):
    """A format that holds the matrices of all experts of a layer in one tensor."""

    def read_stack(self, tensors: Tensors, layer: str, count: int, outputs: int, inputs: int) -> QuantisedStack:
        """That many matrices [outputs, inputs]. Raises CheckpointError."""
        ...


@runtime_checkable
class FormatOfForms(QuantisedFormat, Protocol):
    """A format that can say what a matrix is like without reading it."""

    def form(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """A matrix of the form that `read` gives, with undefined codes and scales. Raises CheckpointError."""
        ...


def unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 [R, n], codes of 4 or 8 bits with the lowest bits first -> uint8 [R, 32 / bits n]."""
    codes = words.contiguous().view(torch.uint8)
    return codes if bits == 8 else torch.stack((codes & 15, codes >> 4), dim=2).flatten(1)


def checked_group_size(group_size: int, inputs: int, layer: str) -> int:
    """The inputs of a group; -1 stands for all. Raises CheckpointError where groups do not divide the inputs."""
    size = inputs if group_size == -1 else group_size
    if size < 1 or inputs % size:
        raise CheckpointError(f"{layer}: groups of {group_size} do not divide its {inputs} inputs")
    return size


def simplified(zeros: torch.Tensor) -> torch.Tensor | int:
    """Zero points [O, G], as one number where all are the same whole number."""
    first = float(zeros.flatten()[0])
    return int(first) if first >= 1 and first == int(first) and bool((zeros == first).all()) else zeros.float()


def order_of(group_of: torch.Tensor, size: int, name: str) -> torch.Tensor | None:
    """group_of [I]: the group of each input -> the inputs by group; None: they are in that order. Raises
    CheckpointError, which names the tensor, unless every group has that size."""
    wanted = torch.arange(len(group_of)) // size
    if torch.equal(group_of.long(), wanted):
        return None
    order = torch.argsort(group_of.long(), stable=True)
    if not torch.equal(group_of.long()[order], wanted):
        raise CheckpointError(f"{name} does not divide the inputs into groups of {size}")
    return order


def cut(tensor: torch.Tensor, shape: tuple[Size, ...]) -> torch.Tensor:
    """The part of a whole tensor that this process holds."""
    for dim, size in enumerate(shape):
        if isinstance(size, Shard):
            parts = [tensor.narrow(dim, start, end - start) for start, end in size.ranges]
            tensor = parts[0] if len(parts) == 1 else torch.cat(parts, dim)
    return tensor
