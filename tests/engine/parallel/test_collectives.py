"""The real group over gloo; its ranks are threads of this process, connected over loopback."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch does not list it

from engine.errors import RankLost
from engine.parallel.collectives import TorchGroup
from engine.parallel.group import Place

T = TypeVar("T")


def on_every_rank(size: int, work: Callable[[TorchGroup], T]) -> list[T]:
    store = HashStore()

    def run(rank: int) -> T:
        return work(TorchGroup(store, Place(rank, size), torch.device("cpu"), is_local=True))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


def test_partial_results_meet() -> None:
    def work(group: TorchGroup) -> tuple[list[float], torch.Tensor, int]:
        rank = group.place.rank
        summed = torch.tensor([1.0, 10.0 * rank])
        assert group.sum(summed) is summed
        joined = group.join(torch.full((2, 3), rank, dtype=torch.bfloat16).t())
        return summed.tolist(), joined, group.minimum(7 - rank)

    for summed, joined, least in on_every_rank(3, work):
        assert summed == [3.0, 30.0]
        assert joined.shape == (3, 3, 2)
        assert [part.unique().tolist() for part in joined] == [[0.0], [1.0], [2.0]]
        assert least == 5


def test_messages_of_any_length_arrive_whole_and_in_order() -> None:
    messages = [b"", b"x", bytes(range(256)) * 31, b"y" * 8184, b"z" * 8185, bytes(range(256)) * 1000, b"end"]

    def work(group: TorchGroup) -> list[bytes]:
        if group.place.rank > 0:
            return [group.hear() for _ in messages]
        for message in messages:
            group.tell(message)
        return messages

    assert on_every_rank(3, work) == [messages] * 3


def test_a_rank_that_has_gone_is_an_error_and_no_wait() -> None:
    def work(group: TorchGroup) -> None:
        if group.place.rank > 0:
            return  # the group goes with it, and its connections are closed
        with pytest.raises(RankLost, match="does not answer"):
            group.sum(torch.ones(3))

    on_every_rank(2, work)


def test_what_a_group_refuses_at_the_call_is_an_error_of_the_group_too() -> None:
    """As NCCL's communicators do that were aborted."""

    def work(group: TorchGroup) -> None:
        with pytest.raises(RankLost, match="does not answer"):
            group.sum(torch.ones(3, device="meta"))

    on_every_rank(1, work)
