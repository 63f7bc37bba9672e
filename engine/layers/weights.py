"""Where layers get their weights from: the seam between model code and the formats of checkpoints."""

from typing import Protocol

import torch

from engine.kernels.operators import Operators
from engine.parallel.group import Group
from engine.parallel.shard import Size


class WeightSource(Protocol):
    """Hands out each tensor of a checkpoint once, in the dtype and on the device of the model."""

    @property
    def operators(self) -> Operators:
        """What the layers compute with."""
        ...

    @property
    def group(self) -> Group:
        """The processes that share the model."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def take(self, name: str, *shape: Size) -> torch.Tensor:
        """The tensor of that name, of sharded dimensions the part that this process holds.

        Raises CheckpointError where it is missing or has another shape.
        """
        ...

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """As take, for what only the operators' `linear`, `embedding` or `tied_embedding` will read.

        Where they hold it already it has no values (a meta tensor); it may be cut, joined and turned as any other.
        """
        ...
