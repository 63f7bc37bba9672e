"""Tensor parallelism of attention: the heads that a process computes, and the channels of its projections."""

from dataclasses import dataclass, replace
from typing import Self

from engine.attention.backend import AttentionShape
from engine.errors import NotDivisible
from engine.parallel.group import Place
from engine.parallel.shard import Shard


@dataclass(frozen=True, slots=True)
class HeadShare:
    """Consecutive query heads and the key/value heads that they read."""

    shape: AttentionShape  #: of this process alone
    queries: Shard  #: channels
    keys: Shard  #: channels of the keys, and so of the values

    @classmethod
    def of(cls, shape: AttentionShape, place: Place) -> Self:
        """The heads of this process; every process has equally many. Where there are fewer key/value heads than
        processes, several processes compute and store the same one. Raises NotDivisible where no equal division
        exists."""
        size, num_heads, num_kv_heads = place.size, shape.num_heads, shape.num_kv_heads
        if num_heads % size or (num_kv_heads % size and size % num_kv_heads):
            heads = f"{num_heads} query heads and {num_kv_heads} key/value heads"
            raise NotDivisible(f"{heads} cannot be divided among {size} processes")
        own, own_kv = num_heads // size, max(1, num_kv_heads // size)
        first, first_kv = place.rank * own, place.rank * num_kv_heads // size
        sinks = None if shape.sinks is None else shape.sinks[first : first + own]
        return cls(
            replace(shape, num_heads=own, num_kv_heads=own_kv, sinks=sinks),
            _channels(shape, num_heads, first, own),
            _channels(shape, num_kv_heads, first_kv, own_kv),
        )

    @property
    def qkv(self) -> list[Shard]:
        """Output channels of the query, key and value projections."""
        return [self.queries, self.keys, self.keys]


def _channels(shape: AttentionShape, num_heads: int, first: int, count: int) -> Shard:
    return Shard(num_heads * shape.head_dim, ((first * shape.head_dim, (first + count) * shape.head_dim),))
