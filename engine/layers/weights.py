"""Where layers get their weights from: the seam between model code and the formats of checkpoints."""

from typing import Protocol

import torch

from engine.kernels.operators import Operators


class WeightSource(Protocol):
    """Hands out each tensor of a checkpoint once, in the dtype and on the device of the model."""

    @property
    def operators(self) -> Operators:
        """What the layers compute with."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor of that name. Raises CheckpointError where it is missing or has another shape."""
        ...
