"""The processes that share one model, as layers see them: ranks, and collective operations on partial results.

Layers know nothing else of processes and networks. collectives.py has the implementation for several processes.
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
    """Every method is a collective operation: all processes call it, in the same order, with tensors of the same
    shape."""

    @property
    def place(self) -> Place:
        """This process's rank, and the number of processes."""
        ...

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, written to x and returned; bit-equal in all processes."""
        ...

    def join(self, x: torch.Tensor) -> torch.Tensor:
        """[*shape] of each process -> [size, *shape], by rank."""
        ...

    def minimum(self, number: int) -> int:
        """The smallest of all processes' numbers."""
        ...


class Solo:
    """The Group of a process that has the whole model."""

    def __init__(self, place: Place = Place()) -> None:
        """place: another place than rank 0 of 1, for counting the parameters of a shard without computing with them."""
        self.place = place

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """x itself."""
        return x

    def join(self, x: torch.Tensor) -> torch.Tensor:
        """[*shape] -> [1, *shape]."""
        return x.unsqueeze(0)

    def minimum(self, number: int) -> int:
        """The number itself."""
        return number
