"""Which part of a weight's dimension a process holds. A layer names a Shard in place of the dimension's size.

A column-parallel linear has sharded outputs, a row-parallel linear sharded inputs (Megatron-LM, Shoeybi et al. 2019).
No torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from engine.errors import NotDivisible
from engine.parallel.group import Place


@dataclass(frozen=True, slots=True)
class Shard:
    """Half-open ranges of a dimension of that size, in order: one range, or several if a tensor holds several
    matrices."""

    size: int
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def even(cls, size: int, place: Place, what: str) -> Self:
        """An equal part for each process. Raises NotDivisible, which names the size by `what`."""
        if size % place.size:
            raise NotDivisible(f"{what} {size} cannot be divided among {place.size} processes")
        part = size // place.size
        return cls(size, ((place.rank * part, (place.rank + 1) * part),))

    @classmethod
    def padded(cls, size: int, place: Place) -> Self:
        """Parts of equal length; the last ones may be shorter, or empty."""
        part = -(-size // place.size)
        start = min(place.rank * part, size)
        return cls(size, ((start, min(start + part, size)),))

    @classmethod
    def stacked(cls, parts: Sequence["Shard"]) -> Self:
        """The shard of a tensor that holds these one after another."""
        ranges: list[tuple[int, int]] = []
        offset = 0
        for part in parts:
            ranges += [(offset + start, offset + end) for start, end in part.ranges]
            offset += part.size
        return cls(offset, tuple(ranges))

    @property
    def held(self) -> int:
        """Length of the part that this process holds."""
        return sum(end - start for start, end in self.ranges)

    @property
    def is_whole(self) -> bool:
        """Whether this process holds the whole dimension."""
        return self.held == self.size


#: A dimension of a weight: its size, or the part of it that this process holds.
Size = int | Shard


def full_size(size: Size) -> int:
    """The size of the whole dimension."""
    return size.size if isinstance(size, Shard) else size


def held_size(size: Size) -> int:
    """The size of the part that this process holds."""
    return size.held if isinstance(size, Shard) else size
