"""The processes that share one model, as layers see them: who they are, and how partial results meet.

Layers know nothing of processes and networks beyond this protocol; collectives.py has the real group.
"""

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Place:
    """One process among those that share a model. Rank 0 leads: it alone has requests and a scheduler."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  #: among those of this machine
    local_size: int = 1


class Group(Protocol):
    """Every method is a meeting: all processes call it, in the same order, with tensors of the same shape."""

    @property
    def place(self) -> Place: ...

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, written to x and returned; the same to the last bit everywhere."""
        ...

    def join(self, x: torch.Tensor) -> torch.Tensor:
        """[*shape] of each process -> [size, *shape], by rank."""
        ...

    def minimum(self, number: int) -> int:
        """The smallest of all processes' numbers."""
        ...


class Solo:
    """A process that has its model for itself."""

    def __init__(self, place: Place = Place()) -> None:
        """place: of another, for what is only counted and never computed."""
        self.place = place

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def join(self, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(0)

    def minimum(self, number: int) -> int:
        return number
