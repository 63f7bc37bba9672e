"""What a mixer is: the first part of a decoder layer, and the only one that reads other tokens than its own.

T = tokens of a step, R = rows of its narrowing.
"""

from typing import Protocol, runtime_checkable

import torch

from engine.attention.backend import ForwardBatch
from engine.attention.rotation import Rotation


class Mixer(Protocol):
    """Attention, or a recurrent layer."""

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes keys and values, or states, to their pages."""
        ...


@runtime_checkable
class NarrowingMixer(Mixer, Protocol):
    """A mixer for which fewer results are less work."""

    def narrowed(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [R, hidden]; writes the keys and values of all T tokens to their pages."""
        ...


def narrowed(mixer: Mixer, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
    """x [T, hidden] -> [R, hidden]: the mixer's output for the rows of the batch's narrowing."""
    assert batch.narrowing is not None
    if isinstance(mixer, NarrowingMixer):
        return mixer.narrowed(x, rotation, batch)
    return mixer(x, rotation, batch).index_select(0, batch.narrowing.rows)
