"""Which part of a weight's dimension a process holds. A shard stands where a layer would else name the size itself.

Column-parallel is a linear whose outputs are sharded, row-parallel one whose inputs are (Megatron-LM, Shoeybi et al.
2019). No torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from engine.errors import NotDivisible
from engine.parallel.group import Place


@dataclass(frozen=True, slots=True)
class Shard:
    """Half-open ranges of a dimension of that size, in order: one, or several where a tensor holds several matrices."""

    size: int
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def even(cls, size: int, place: Place, what: str) -> Self:
        """An equal part for each process. `what` names the size in the error of one that cannot be divided."""
        if size % place.size:
            raise NotDivisible(f"{what} {size} cannot be divided among {place.size} processes")
        part = size // place.size
        return cls(size, ((place.rank * part, (place.rank + 1) * part),))

    @classmethod
    def padded(cls, size: int, place: Place) -> Self:
        """Parts of the same length but for the last ones, which may be shorter, or empty."""
        part = -(-size // place.size)
        start = min(place.rank * part, size)
        return cls(size, ((start, min(start + part, size)),))

    @classmethod
    def stacked(cls, parts: Sequence["Shard"]) -> Self:
        """Of one tensor that holds all of these one after another."""
        ranges: list[tuple[int, int]] = []
        offset = 0
        for part in parts:
            ranges += [(offset + start, offset + end) for start, end in part.ranges]
            offset += part.size
        return cls(offset, tuple(ranges))

    @property
    def held(self) -> int:
        """How much of the dimension this process has."""
        return sum(end - start for start, end in self.ranges)

    @property
    def is_whole(self) -> bool:
        return self.held == self.size


#: A dimension of a weight: all of it, or a part.
Size = int | Shard


def full_size(size: Size) -> int:
    return size.size if isinstance(size, Shard) else size


def held_size(size: Size) -> int:
    return size.held if isinstance(size, Shard) else size
