"""The page tables of all sequences: match, admit, extend, copy on write, publish, fork, free. The facade of memory/.

The scheduler calls it, from one thread. PagedAttention (SOSP'23) section 4 gives the operations, Jenga (arXiv
2503.18292) sections 4 and 5 their meaning for several layer types. Knows token ids only as content of pages; knows no
requests beyond a number, no queue and no tensors: what must be copied or told to the device is returned.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.memory.admission import AdmissionRule, Needs
from engine.memory.hashing import PageChain
from engine.memory.large_pool import LargePool
from engine.memory.policies import LayerPolicy, policy_for
from engine.memory.small_pool import RequestKey, SmallPool
from engine.memory.spec import NULL_PAGE, PoolPlan

SequenceKey = int


@dataclass(frozen=True, slots=True)
class TableChange:
    """Entries from `start` on of a sequence's table for one layer type (its index in PoolPlan.types)."""

    layer_type: int
    start: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """Content of small page `src` must be in `dst` before anything is written in this step."""

    layer_type: int
    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class Extension:
    changes: tuple[TableChange, ...] = ()
    copies: tuple[Copy, ...] = ()


_NOTHING_CHANGED = Extension()


@dataclass(slots=True, eq=False)
class _Tables:
    """One sequence: a page table per layer type. Pages cover positions [0, num_slots), data is in [0, num_filled)."""

    request: RequestKey
    pages: list[list[int]]
    first_live: list[int]  # entries before it are NULL_PAGE: dropped, or never needed
    num_published: list[int]
    chains: dict[int, PageChain]  # by page size
    num_slots: int = 0
    num_filled: int = 0
    next_boundary: int = 0  # nothing to publish or drop before that many tokens are filled
    may_share_tail: bool = False
    last_access: int = 0


@dataclass(slots=True)
class CacheCounters:
    """Since the cache was made."""

    num_copies: int = 0  #: small pages copied on write
    num_forks: int = 0


class KVCache:
    """Owner of the pool's bookkeeping. Sequences are named by the caller's ids, from `open` until `close`."""

    def __init__(self, plan: PoolPlan, *, enable_prefix_caching: bool = True) -> None:
        self.plan = plan
        self.rule = AdmissionRule(plan)
        self.enable_prefix_caching = enable_prefix_caching
        self.counters = CacheCounters()
        self.large_pool = LargePool(plan.num_large_pages)
        self.pools = [SmallPool(kind, plan.ratio(kind), self.large_pool) for kind in plan.types]
        self._policies: list[LayerPolicy] = [policy_for(kind) for kind in plan.types]
        self._page_tokens = [kind.page_tokens for kind in plan.types]
        self._alignment = math.lcm(*self._page_tokens)
        self._tables: dict[SequenceKey, _Tables] = {}
        self._step = 0
        self._num_releases = 0

    # Life of a sequence

    def begin_step(self, step: int) -> None:
        """One time stamp for everything that is touched until the next call."""
        assert step >= self._step
        self._step = step

    def open(self, sequence: SequenceKey, request: RequestKey, salt: bytes = b"") -> None:
        """Make a sequence known; it holds no pages yet. Sequences of one request are kept close in memory."""
        assert sequence not in self._tables
        num_types = len(self.pools)
        self._tables[sequence] = _Tables(
            request=request,
            pages=[[] for _ in range(num_types)],
            first_live=[0] * num_types,
            num_published=[0] * num_types,
            chains={size: PageChain(size, salt) for size in self._page_tokens},
        )

    def close(self, sequence: SequenceKey) -> None:
        """Forget a sequence and free its pages."""
        self.free(sequence)
        del self._tables[sequence]

    def end_request(self, request: RequestKey) -> None:
        """No sequence of this request will allocate any more (it finished or was preempted)."""
        for pool in self.pools:
            pool.end_request(request)

    def touch(self, sequence: SequenceKey) -> None:
        """The sequence is used in this step: its pages get this time stamp when released. `extend` does it too."""
        self._tables[sequence].last_access = self._step

    # Admission

    def can_admit(self, lengths: Sequence[int], num_shared_tokens: int = 0, *, num_spare_pages: int = 0) -> bool:
        """Whether sequences that grow to these lengths, sharing a prefix, fit beside everything that is used now.

        Cached pages count as room: they are evicted on demand. num_spare_pages of each type must be left over.
        """
        return self._has_room(self.rule.needs(lengths, num_shared_tokens), num_spare_pages)

    def match(self, sequence: SequenceKey, token_ids: Sequence[int], max_tokens: int) -> int:
        """Length of the longest cached prefix valid for all layer types, at most max_tokens. Changes nothing."""
        return self._match(self._tables[sequence], token_ids, max_tokens)[0]

    def admit(
        self,
        sequence: SequenceKey,
        token_ids: Sequence[int],
        max_hit: int,
        lengths: Sequence[int],
        num_shared_tokens: int = 0,
        *,
        num_spare_pages: int = 0,
    ) -> int | None:
        """Give a sequence without pages its cached prefix of at most max_hit tokens, if there is room for the rest.

        Returns the length of the prefix; None, with nothing changed, where `can_admit` beside that prefix says no.
        """
        tables = self._tables[sequence]
        assert tables.num_slots == 0
        num_tokens, hits = self._match(tables, token_ids, max_hit)
        # All hits of all types are held before anything is allocated or counted: an allocation could evict a hit.
        for pool, pages in zip(self.pools, hits, strict=True):
            for page in pages:
                if page != NULL_PAGE:
                    pool.share(page)
        needs = self.rule.needs(lengths, num_shared_tokens)
        remaining = tuple(need - len(pages) + pages.count(NULL_PAGE) for need, pages in zip(needs, hits, strict=True))
        if not self._has_room(remaining, num_spare_pages):
            for pool, pages in zip(self.pools, hits, strict=True):
                for page in pages:
                    if page != NULL_PAGE:
                        pool.release(page, 0)
            return None
        tables.pages = hits
        tables.num_slots = tables.num_filled = num_tokens
        for which, page_tokens in enumerate(self._page_tokens):
            tables.num_published[which] = num_tokens // page_tokens
            tables.first_live[which] = self._policies[which].first_live_page(num_tokens)
        self._set_boundary(tables)
        tables.last_access = self._step
        return num_tokens

    # Growth

    def extend(self, sequence: SequenceKey, start: int, end: int) -> Extension | None:
        """Make positions [start, end) writable: new pages, and own copies of pages that other sequences share.

        Returns what changed; None, with nothing changed, where there is no room.
        """
        tables = self._tables[sequence]
        tables.last_access = self._step
        if end <= tables.num_slots and not tables.may_share_tail:
            return _NOTHING_CHANGED
        needs = []
        for pool, pages in zip(self.pools, tables.pages, strict=True):
            size = pool.layer_type.page_tokens
            need = max(0, -(-end // size) - len(pages))
            if tables.may_share_tail:
                need += sum(pool.ref_counts[page] > 1 for page in pages[start // size :])
            needs.append(need)
        may_take_large = self._prepare(tables.request, needs)
        if may_take_large is None:
            return None
        changes: list[TableChange] = []
        copies: list[Copy] = []
        num_slots = []
        for which, pool in enumerate(self.pools):
            pages, size = tables.pages[which], pool.layer_type.page_tokens
            if tables.may_share_tail:
                for index in range(start // size, len(pages)):
                    if pool.ref_counts[pages[index]] > 1:
                        copy = self._copy_on_write(which, tables, index, may_take_large)
                        copies.append(copy)
                        changes.append(TableChange(which, index, (copy.dst,)))
            first_new = len(pages)
            for _ in range(-(-end // size) - first_new):
                page = pool.allocate(tables.request, may_take_large=may_take_large)
                assert page is not None, "there was room"
                pages.append(page)
            if len(pages) > first_new:
                changes.append(TableChange(which, first_new, tuple(pages[first_new:])))
            num_slots.append(len(pages) * size)
        tables.num_slots = min(num_slots)
        tables.may_share_tail = False
        return Extension(tuple(changes), tuple(copies))

    def advance(self, sequence: SequenceKey, token_ids: Sequence[int], num_filled: int) -> None:
        """The step has written positions up to num_filled: publish full pages, drop those that no layer reads again.

        token_ids are the sequence's tokens, at least num_filled of them.
        """
        tables = self._tables[sequence]
        assert tables.num_filled <= num_filled <= tables.num_slots
        tables.num_filled = num_filled
        if num_filled < tables.next_boundary:
            return
        for which, pool in enumerate(self.pools):
            pages, size = tables.pages[which], self._page_tokens[which]
            if self.enable_prefix_caching:
                chain = tables.chains[size]
                num_full = num_filled // size
                chain.extend(token_ids, num_full)
                for index in range(tables.num_published[which], num_full):
                    pool.publish(pages[index], chain.keys[index], chain.contents[index], (index + 1) * size)
                tables.num_published[which] = num_full
            first_live = self._policies[which].first_live_page(num_filled)
            for index in range(tables.first_live[which], first_live):
                pool.release(pages[index], self._step)
                pages[index] = NULL_PAGE
                self._num_releases += 1
            tables.first_live[which] = first_live
        self._set_boundary(tables)

    def fork(self, source: SequenceKey, target: SequenceKey) -> None:
        """The target, known and without pages, shares all pages of the source. Either copies before it writes."""
        tables, other = self._tables[source], self._tables[target]
        assert other.num_slots == 0
        for pool, pages in zip(self.pools, tables.pages, strict=True):
            for page in pages:
                if page != NULL_PAGE:
                    pool.share(page)
        other.pages = [list(pages) for pages in tables.pages]
        other.first_live = list(tables.first_live)
        other.num_published = list(tables.num_published)
        # A chain may know pages that are not filled yet; there the target may have other tokens.
        other.chains = {size: chain.copy(tables.num_filled // size) for size, chain in tables.chains.items()}
        other.num_slots, other.num_filled = tables.num_slots, tables.num_filled
        other.next_boundary, other.last_access = tables.next_boundary, self._step
        tables.may_share_tail = other.may_share_tail = True
        self.counters.num_forks += 1

    def free(self, sequence: SequenceKey) -> None:
        """Give up all pages. What was published stays cached until someone needs the room; the sequence stays open."""
        tables = self._tables[sequence]
        for which, pool in enumerate(self.pools):
            for page in tables.pages[which]:
                if page != NULL_PAGE:
                    pool.release(page, tables.last_access)
            tables.pages[which] = []
            tables.first_live[which] = tables.num_published[which] = 0
        if tables.num_slots:
            self._num_releases += 1
        tables.num_slots = tables.num_filled = tables.next_boundary = 0
        tables.may_share_tail = False

    # Views

    def page_table(self, sequence: SequenceKey) -> list[tuple[int, ...]]:
        """The sequence's small page ids, one table per layer type."""
        return [tuple(pages) for pages in self._tables[sequence].pages]

    @property
    def release_count(self) -> int:
        """Grows whenever pages were freed: a reason to try again what did not fit."""
        return self._num_releases

    @property
    def is_unused(self) -> bool:
        return not any(pool.num_used for pool in self.pools)

    def unfilled_slots(self) -> list[int]:
        """Token positions of used pages without data yet, per layer type; a shared page counts once. O(sequences)."""
        result = []
        for which, size in enumerate(self._page_tokens):
            filled: dict[int, int] = {}
            for tables in self._tables.values():
                for index in range(tables.num_filled // size, len(tables.pages[which])):
                    page = tables.pages[which][index]
                    in_page = min(size, max(0, tables.num_filled - index * size))
                    filled[page] = max(filled.get(page, 0), in_page)
            result.append(sum(size - in_page for in_page in filled.values()))
        return result

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page is accounted for. O(pool); for tests and for an idle engine."""
        for which, pool in enumerate(self.pools):
            pool.check_integrity()
            counts = [0] * len(pool.ref_counts)
            for tables in self._tables.values():
                pages = tables.pages[which]
                for page in pages:
                    counts[page] += page != NULL_PAGE
                held = [page for page in pages if page != NULL_PAGE]
                _check(len(set(held)) == len(held), "a page occurs twice in one table")
                _check(tables.num_slots <= len(pages) * self._page_tokens[which], "positions without a page")
            _check(counts == pool.ref_counts, f"reference counts of {pool.layer_type.name}")
        empty = self.large_pool.empty_pages()
        _check(len(set(empty)) == len(empty), "a large page is empty twice")
        owned = [page for page in range(self.large_pool.num_large_pages) if self.large_pool.owner(page) is not None]
        _check(not set(empty) & set(owned), "an empty large page has an owner")
        _check(0 not in empty and 0 not in owned, "the null page was handed out")
        _check(len(empty) + len(owned) == self.plan.num_usable_large_pages, "large pages are missing")
        small = sum(
            (pool.num_used + pool.num_evictable + pool.num_empty) * pool.layer_type.small_page_bytes
            for pool in self.pools
        )
        _check(small == len(owned) * self.plan.large_page_bytes, "used + evictable + empty bytes")

    # Inside

    def _match(self, tables: _Tables, token_ids: Sequence[int], max_tokens: int) -> tuple[int, list[list[int]]]:
        """Longest valid prefix (Jenga section 5.2) and its pages per type, NULL_PAGE where a type needs none."""
        limit = max_tokens - max_tokens % self._alignment
        if not self.enable_prefix_caching or limit <= 0:
            return 0, [[] for _ in self.pools]
        valid = [(0, limit)]
        found: list[dict[int, int]] = []
        for which, pool in enumerate(self.pools):
            size, pages = self._page_tokens[which], dict[int, int]()
            chain = tables.chains[size]

            def is_cached(
                index: int, pool: SmallPool = pool, chain: PageChain = chain, pages: dict[int, int] = pages
            ) -> bool:
                chain.extend(token_ids, index + 1)
                page = pool.lookup(chain.keys[index], chain.contents[index])
                if page is None:
                    return False
                pages[index] = page
                return True

            valid = _intersect(valid, self._policies[which].hit_lengths(is_cached, valid[-1][1]))
            found.append(pages)
        length = max(high - high % self._alignment for low, high in valid if high - high % self._alignment >= low)
        hits = []
        for which, size in enumerate(self._page_tokens):
            first_live = self._policies[which].first_live_page(length)
            pages = found[which]
            hits.append([pages[i] if i >= first_live else NULL_PAGE for i in range(length // size)])
        return length, hits

    def _has_room(self, needs: Needs, num_spare_pages: int = 0) -> bool:
        wanted = [need + num_spare_pages for need in needs]
        reusable = [pool.num_reusable_beside_used for pool in self.pools]
        return self.rule.large_pages(wanted, reusable) <= self.large_pool.num_available

    def _prepare(self, request: RequestKey, needs: Sequence[int]) -> bool | None:
        """Make sure that these pages can be allocated one after another: the answer is SmallPool.allocate's argument.

        With plenty of large pages the plain order of allocation cannot fail. Otherwise one type could take the large
        page that another type needs while it has small ones to reuse; so each type first claims the fewest large
        pages it can do with (the artifact of Jenga sets a quota for the same reason), and takes no more. None: there
        is no room.
        """
        large_pool = self.large_pool
        num_at_hand = large_pool.num_empty + large_pool.num_evictable
        if sum(needs) <= num_at_hand:
            return True
        own = [pool.num_associated_empty(request) for pool in self.pools]
        if self.rule.large_pages(needs, own) <= num_at_hand:
            return True
        if not self._has_room(tuple(needs)):
            return None
        claims = [
            -(-max(0, need - pool.num_reusable_beside_used) // pool.ratio)
            for need, pool in zip(needs, self.pools, strict=True)
        ]
        for pool, num_claims in zip(self.pools, claims, strict=True):
            for _ in range(num_claims):
                has_claimed = pool.claim_large(request)
                assert has_claimed, "there was room"
        return False

    def _copy_on_write(self, which: int, tables: _Tables, index: int, may_take_large: bool) -> Copy:
        pool, pages = self.pools[which], tables.pages[which]
        src = pages[index]
        dst = pool.allocate(tables.request, may_take_large=may_take_large)
        assert dst is not None, "there was room"
        pool.release(src, self._step)
        pages[index] = dst
        self.counters.num_copies += 1
        return Copy(which, src, dst)

    def _set_boundary(self, tables: _Tables) -> None:
        """Next fill level at which `advance` has something to do: the end of a page of any type."""
        tables.next_boundary = min((tables.num_filled // size + 1) * size for size in self._page_tokens)


def _intersect(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Intersection of two sorted lists of closed intervals; both contain 0, so it is never empty."""
    result = [
        (max(low, other_low), min(high, other_high))
        for low, high in left
        for other_low, other_high in right
        if max(low, other_low) <= min(high, other_high)
    ]
    return sorted(result)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
