"""Other ways to keep memory, behind the interface of KVCache, so that the same scheduler drives them all.

Most baselines need no code: equal pages, max pages and one table for all layers are plans for the real cache. What is
here behaves differently: allocation that ignores requests, eviction in the order of release, a pool for each type, and
contiguous reservation as before paging.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from engine.memory.admission import AdmissionRule, Needs
from engine.memory.kv_cache import Extension, KVCache, _Tables
from engine.memory.large_pool import LargePool
from engine.memory.small_pool import SmallPool
from engine.memory.spec import NULL_PAGE, PoolPlan


class NaiveKVCache(KVCache):
    """Allocation that does not know requests: any empty small page of the type will do."""

    def open(self, sequence: int, request: int, salt: bytes = b"", images: Any = ()) -> None:
        super().open(sequence, 0, salt, images)

    def end_request(self, request: int) -> None:
        pass


class ReleaseOrderKVCache(KVCache):
    """Evicts in the order of release, as today's engines do: type by type and tail first when a request ends, and what
    fell out of a window of a running request counts as just used."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._releases = itertools.count(1)

    def free(self, sequence: int) -> None:
        tables = self._tables[sequence]
        for which, pool in enumerate(self.pools):
            for page in reversed(tables.pages[which]):
                if page != NULL_PAGE:
                    pool.release(page, next(self._releases))
            tables.pages[which] = []
        super().free(sequence)

    def _drop(self, tables: _Tables, which: int, first_live: int) -> None:
        pages = tables.pages[which]
        for index in range(tables.first_live[which], first_live):
            if pages[index] != NULL_PAGE:
                self.pools[which].release(pages[index], next(self._releases))
                pages[index] = NULL_PAGE
                self._num_releases += 1
        tables.first_live[which] = max(first_live, tables.first_live[which])


class StaticPartitionKVCache(KVCache):
    """A pool for each type, of a fixed share: by its bytes per token, a window's tokens counted with 0.8 as SGLang's
    default does."""

    def __init__(self, plan: PoolPlan, **options: Any) -> None:
        super().__init__(plan, **options)
        weights = [
            kind.small_page_bytes / kind.page_tokens * (0.8 if kind.spec.kind == "window" else 1.0)
            for kind in plan.types
        ]
        self._own = [
            LargePool(1 + max(1, int(plan.num_usable_large_pages * weight / sum(weights)))) for weight in weights
        ]
        self.pools = [SmallPool(kind, plan.ratio(kind), own) for kind, own in zip(plan.types, self._own, strict=True)]

    def _has_room(self, needs: Needs, num_spare_pages: int = 0) -> bool:
        return all(
            need + num_spare_pages <= pool.num_reusable_beside_used + own.num_available * pool.ratio
            for need, pool, own in zip(needs, self.pools, self._own, strict=True)
        )

    def _prepare(self, request: int, needs: Sequence[int]) -> bool | None:
        return True if self._has_room(tuple(needs)) else None


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
