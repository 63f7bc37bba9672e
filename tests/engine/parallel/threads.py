"""A group of threads of one process: what every rank computes, without the cost of processes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from engine.parallel.group import Group, Place

T = TypeVar("T")


class _Table:
    """Where the threads put what the others take."""

    def __init__(self, size: int) -> None:
        self.items: list[object] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)


class ThreadGroup:
    def __init__(self, rank: int, size: int, table: _Table) -> None:
        self.place = Place(rank, size, rank, size)
        self._table = table

    def _exchange(self, item: T) -> list[T]:
        self._table.items[self.place.rank] = item
        self._table.barrier.wait()
        items = list(self._table.items)
        self._table.barrier.wait()
        return items  # type: ignore[return-value]

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        parts = self._exchange(x.clone())
        assert {part.shape for part in parts} == {x.shape}
        return x.copy_(torch.stack(parts).sum(0))

    def join(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._exchange(x))

    def minimum(self, number: int) -> int:
        return min(self._exchange(number))


def on_every_rank(size: int, work: Callable[[Group], T]) -> list[T]:
    """The result of each rank; the first error of any."""
    table = _Table(size)

    def run(rank: int) -> T:
        try:
            return work(ThreadGroup(rank, size, table))
        except Exception:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        errors = [future.exception() for future in futures]
        for error in sorted(filter(None, errors), key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error
        return [future.result() for future in futures]
