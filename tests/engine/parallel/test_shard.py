"""Shards of all ranks are the whole, once; heads go together with the channels of their projections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.backend import AttentionShape
from engine.errors import NotDivisible
from engine.layers.heads import HeadShare
from engine.parallel.group import Place
from engine.parallel.shard import Shard


def places(size: int) -> list[Place]:
    return [Place(rank, size) for rank in range(size)]


def channels(shard: Shard) -> list[int]:
    return [channel for start, end in shard.ranges for channel in range(start, end)]


@given(st.integers(1, 200), st.integers(1, 9))
def test_padded_shards_cover_a_dimension_once(size: int, num_ranks: int) -> None:
    shards = [Shard.padded(size, place) for place in places(num_ranks)]
    assert [channel for shard in shards for channel in channels(shard)] == list(range(size))
    assert [shard.held for shard in shards] == [len(channels(shard)) for shard in shards]
    assert max(shard.held for shard in shards) == -(-size // num_ranks)


def test_even_shards_are_equal_or_refused() -> None:
    assert [channels(Shard.even(6, place, "size")) for place in places(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(NotDivisible, match="intermediate_size 7 cannot be divided among 3 processes"):
        Shard.even(7, Place(0, 3), "intermediate_size")


def test_a_stack_of_shards_is_a_shard_of_the_stack() -> None:
    stack = Shard.stacked([Shard.even(size, Place(1, 2), "size") for size in (4, 2, 2)])
    assert (stack.size, channels(stack)) == (8, [2, 3, 5, 7])


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "size"), [(8, 4, 2), (8, 2, 2), (8, 2, 4), (6, 1, 3), (4, 4, 4)])
def test_every_rank_has_the_key_value_heads_that_its_query_heads_read(
    num_heads: int, num_kv_heads: int, size: int
) -> None:
    shape = AttentionShape(num_heads, num_kv_heads, 2)
    seen = []
    for place in places(size):
        share = HeadShare.of(shape, place)
        heads, kv_heads = channels(share.queries)[::2], channels(share.keys)[::2]
        assert (share.shape.num_heads, share.shape.num_kv_heads) == (len(heads), len(kv_heads))
        for index, channel in enumerate(heads):
            assert channel // 2 // shape.group_size == kv_heads[index // share.shape.group_size] // 2
        seen += heads
    assert seen == list(range(0, 2 * num_heads, 2))


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "size"), [(6, 2, 3), (6, 6, 4), (12, 4, 6), (2, 1, 4)])
def test_heads_that_cannot_be_divided_are_refused(num_heads: int, num_kv_heads: int, size: int) -> None:
    with pytest.raises(NotDivisible):
        HeadShare.of(AttentionShape(num_heads, num_kv_heads, 2), Place(0, size))
