"""A mirror pool in main memory for preempted requests: which device page goes to which host page. Moves no bytes.

All sequences of a request are swapped out and in together (PagedAttention section 4.5). A page that several of them
share is moved once and shared again on return. The scheduler decides which request is swapped out; the runner owns the
memory and carries out the moves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from engine.memory.large_pool import LargePool
from engine.memory.small_pool import SmallPool
from engine.memory.spec import NULL_PAGE, NUM_NULL_LARGE_PAGES, PoolPlan

RequestKey = int
PageTables = Sequence[Sequence[tuple[int, ...]]]  #: by sequence and layer type


@dataclass(frozen=True, slots=True)
class Move:
    """One small page between the pool and its mirror: swap-out copies device to host, swap-in host to device."""

    layer_type: int
    device_page: int
    host_page: int


@dataclass(frozen=True, slots=True)
class _Stored:
    tables: tuple[tuple[tuple[int, ...], ...], ...]  # host pages
    pages: tuple[tuple[int, ...], ...]  # each host page once, by layer type


def mirror_plan(plan: PoolPlan, swap_bytes: int) -> PoolPlan | None:
    """Layout of a mirror of at most swap_bytes, its null page included; None for 0 bytes. ValueError where not even one
    large page would be left for requests."""
    if swap_bytes == 0:
        return None
    num_large_pages = swap_bytes // plan.large_page_bytes
    if num_large_pages <= NUM_NULL_LARGE_PAGES:
        needed = (NUM_NULL_LARGE_PAGES + 1) * plan.large_page_bytes
        raise ValueError(f"a swap space of {swap_bytes} bytes is too small: this model needs at least {needed} bytes")
    return replace(plan, num_large_pages=num_large_pages)


class MirrorPool:
    """Owner of the mirror's pages: the same small and large pages as the device pool's, without a cache."""

    def __init__(self, plan: PoolPlan) -> None:
        self.plan = plan
        self.large_pool = LargePool(plan.num_large_pages)
        self.pools = [SmallPool(kind, plan.ratio(kind), self.large_pool) for kind in plan.types]
        self._types = range(len(self.pools))
        self._stored: dict[RequestKey, _Stored] = {}

    def __contains__(self, request: RequestKey) -> bool:
        return request in self._stored

    @property
    def used_bytes(self) -> int:
        """Bytes of all swapped-out pages."""
        return sum(pool.num_used * pool.layer_type.small_page_bytes for pool in self.pools)

    @property
    def num_requests(self) -> int:
        """Requests that are swapped out."""
        return len(self._stored)

    def bytes_of(self, tables: PageTables) -> tuple[int, int]:
        """Bytes and pages that swapping out sequences with these page tables would move."""
        num_pages = [len({page for table in tables for page in table[which]} - {NULL_PAGE}) for which in self._types]
        num_bytes = sum(
            count * pool.layer_type.small_page_bytes for count, pool in zip(num_pages, self.pools, strict=True)
        )
        return num_bytes, sum(num_pages)

    def swap_out(self, request: RequestKey, tables: PageTables) -> tuple[Move, ...] | None:
        """Host pages for all pages of a request's sequences; tables as KVCache.page_table returns them.

        The caller frees the device pages once the moves are done. None, with nothing changed, where the mirror is full.
        """
        assert request not in self._stored
        moves: list[Move] = []
        host_of: list[dict[int, int]] = [{NULL_PAGE: NULL_PAGE} for _ in self.pools]
        for which, pool in enumerate(self.pools):
            for device_page in chain.from_iterable(table[which] for table in tables):
                if device_page in host_of[which]:
                    continue
                host_page = pool.allocate(request)
                if host_page is None:
                    self._release(request, host_of)
                    return None
                host_of[which][device_page] = host_page
                moves.append(Move(which, device_page, host_page))
        self._stored[request] = _Stored(
            tables=tuple(
                tuple(tuple(host_of[which][page] for page in pages) for which, pages in enumerate(table))
                for table in tables
            ),
            pages=tuple(tuple(page for page in pages.values() if page != NULL_PAGE) for pages in host_of),
        )
        return tuple(moves)

    def tables(self, request: RequestKey) -> PageTables:
        """The swapped-out tables in pages of the mirror; shared pages and null pages are where they were."""
        return self._stored[request].tables

    def swap_in(self, request: RequestKey, tables: PageTables) -> tuple[Move, ...]:
        """Moves that fill these device pages: tables of the same shape as the swapped-out ones, with the same sharing.

        The mirror's pages are free when this returns, so the moves must be carried out before the next swap-out."""
        stored = self._stored.pop(request)
        moves: dict[tuple[int, int], Move] = {}
        for old, new in zip(stored.tables, tables, strict=True):
            for which, (host_pages, device_pages) in enumerate(zip(old, new, strict=True)):
                moves.update(_moves_in(which, host_pages, device_pages))
        self._free(request, stored.pages)
        return tuple(moves.values())

    def drop(self, request: RequestKey) -> None:
        """Free the pages of a swapped-out request that was aborted."""
        self._free(request, self._stored.pop(request).pages)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page of the mirror is accounted for. O(pages)."""
        for pool in self.pools:
            pool.check_integrity()
        for which, pool in enumerate(self.pools):
            held = sum(len(stored.pages[which]) for stored in self._stored.values())
            if held != pool.num_used:
                raise AssertionError(f"{pool.layer_type.name}: {pool.num_used} mirror pages are used, {held} are known")

    def _release(self, request: RequestKey, host_of: list[dict[int, int]]) -> None:
        self._free(request, [[page for page in pages.values() if page != NULL_PAGE] for pages in host_of])

    def _free(self, request: RequestKey, pages: Sequence[Sequence[int]]) -> None:
        for pool, host_pages in zip(self.pools, pages, strict=True):
            for page in host_pages:
                pool.release(page, 0)
            pool.end_request(request)


def _moves_in(
    layer_type: int, host_pages: Sequence[int], device_pages: Sequence[int]
) -> Iterator[tuple[tuple[int, int], Move]]:
    """Moves by layer type and device page: a page that is shared moves once."""
    for host_page, device_page in zip(host_pages, device_pages, strict=True):
        assert (host_page == NULL_PAGE) == (device_page == NULL_PAGE)
        if host_page != NULL_PAGE:
            yield (layer_type, device_page), Move(layer_type, device_page, host_page)
