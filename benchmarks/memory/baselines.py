"""Other ways to manage memory, with the interface of KVCache, so that the same scheduler drives all of them.

Most baselines need no code: equal pages, max pages and one table for all layers are plans for the real cache. The
classes here behave differently: allocation that ignores requests, eviction in the order of release, a pool for each
type, and contiguous reservation as before paging.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine.memory.admission import AdmissionRule, Needs
from engine.memory.deferred_frees import DeferredFrees
from engine.memory.growth import Extension
from engine.memory.kv_cache import KVCache
from engine.memory.large_pool import LargePool
from engine.memory.lockstep import LockstepGroup
from engine.memory.room import Room
from engine.memory.sequence_tables import SequenceTables
from engine.memory.small_pool import SmallPool
from engine.memory.spec import NULL_PAGE, PoolPlan


class NaiveKVCache(KVCache):
    """Allocation that ignores requests: it takes any empty small page of the type."""

    def open(self, sequence: int, request: int, salt: bytes = b"", images: Any = ()) -> None:
        super().open(sequence, 0, salt, images)

    def end_request(self, request: int) -> None:
        pass


class _SeparatePlan(PoolPlan):
    """Every page table by itself: without lockstep, a request's pages are not even aligned between equal types."""

    def lockstep_groups(self) -> tuple[tuple[int, ...], ...]:
        return tuple((index,) for index in range(len(self.types)))


class _InOrder(DeferredFrees):
    """Every release has a time stamp of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._stamps = itertools.count(1)

    def release(self, pool: SmallPool, page: int, last_access: int) -> None:
        super().release(pool, page, next(self._stamps))


class ReleaseOrderKVCache(KVCache):
    """Evicts in the order of release, as today's engines do: type by type and tail first when a request ends, and pages
    that left the window of a running request count as just used."""

    def __init__(self, plan: PoolPlan, **options: Any) -> None:
        super().__init__(_SeparatePlan(plan.types, plan.large_page_bytes, plan.num_large_pages), **options)
        self._frees = _InOrder()

    def free(self, sequence: int) -> None:
        tables = self._tables[sequence]
        for group in self.groups:
            for page in reversed(tables.pages[group.index]):
                if page != NULL_PAGE:
                    self._frees.release(group.pool, page, 0)
            tables.pages[group.index] = []
        tables.checkpoints.clear()
        super().free(sequence)

    def _drop(self, tables: SequenceTables, group: LockstepGroup, first_live: int) -> None:
        pages = tables.pages[group.index]
        for index in range(tables.first_live[group.index], first_live):
            if pages[index] != NULL_PAGE:
                self._frees.release(group.pool, pages[index], 0)
                pages[index] = NULL_PAGE
                self.large_pool.num_releases += 1
        tables.first_live[group.index] = first_live


class _SeparateRoom(Room):
    """Every group of types has large pages of its own."""

    def __init__(self, groups: Sequence[LockstepGroup], large_pools: Sequence[LargePool]) -> None:
        self._pools = list(zip((group.pool for group in groups), large_pools, strict=True))

    def has(self, needs: Needs, num_spare_pages: int = 0) -> bool:
        return all(
            need + num_spare_pages <= pool.num_reusable_beside_used + own.num_available // pool.width * pool.ratio
            for need, (pool, own) in zip(needs, self._pools, strict=True)
        )

    def prepare(self, request: int, needs: Sequence[int]) -> bool | None:
        return True if self.has(tuple(needs)) else None


class StaticPartitionKVCache(KVCache):
    """A pool for each type, of a fixed share: by its bytes per token, a window's tokens counted with 0.8 as SGLang's
    default does."""

    def __init__(self, plan: PoolPlan, **options: Any) -> None:
        super().__init__(plan, **options)
        weights = [
            group.pool.page_bytes / group.page_tokens * (0.8 if group.kind == "window" else 1.0)
            for group in self.groups
        ]
        large_pools = []
        for group, weight in zip(self.groups, weights, strict=True):
            width = group.pool.width
            num_rows = int(plan.num_usable_large_pages * weight / sum(weights) / width)
            large_pools.append(LargePool(1 + width * max(1, num_rows)))
        self.groups = [
            replace(group, pool=SmallPool(group.pool.layer_type, group.pool.ratio, own, group.pool.width))
            for group, own in zip(self.groups, large_pools, strict=True)
        ]
        self._use_groups(_SeparateRoom(self.groups, large_pools))


class ContiguousCache:
    """One range of slots per request, reserved at admission, first fit. `reserve` says how many for a sequence."""

    def __init__(self, plan: PoolPlan, reserve: Callable[[int], int]) -> None:
        self.plan = plan
        self.rule = AdmissionRule(plan)
        self.release_count = 0
        self.num_slots = plan.num_usable_large_pages * plan.types[0].page_tokens
        self._reserve = reserve
        self._ranges: dict[int, tuple[int, int]] = {}  # sequence -> [start, end)

    @property
    def num_reserved(self) -> int:
        return sum(end - start for start, end in self._ranges.values())

    def begin_step(self, step: int) -> None:
        pass

    def open(self, sequence: int, request: int, salt: bytes = b"", images: Any = ()) -> None:
        pass

    def admit(self, sequence: int, *_: Any, **__: Any) -> int | None:
        wanted, start = self._reserve(sequence), 0
        for first, last in sorted(self._ranges.values()):
            if first - start >= wanted:
                break
            start = last
        if start + wanted > self.num_slots:
            return None
        self._ranges[sequence] = (start, start + wanted)
        return 0

    def chunk_end(self, start: int, end: int) -> int:
        return end

    def extend(self, sequence: int, start: int, end: int) -> Extension:
        return Extension()

    def advance(self, sequence: int, token_ids: Sequence[int], num_filled: int) -> None:
        pass

    def page_table(self, sequence: int) -> list[tuple[int, ...]]:
        return [()]

    def free(self, sequence: int) -> None:
        self._ranges.pop(sequence, None)
        self.release_count += 1

    close = free

    def end_request(self, request: int) -> None:
        pass
