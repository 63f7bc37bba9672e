"""The page tables of all sequences: match, admit, extend, copy on write, publish, fork, free. The facade of memory/.

The scheduler calls it, from one thread. PagedAttention (SOSP'23) section 4 gives the operations, Jenga (arXiv
2503.18292) sections 4 and 5 their meaning for several layer types. Knows token ids only as content of pages; knows no
requests beyond a number, no queue and no tensors: what must be copied or told to the device is returned.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.memory.admission import AdmissionRule, Needs
from engine.memory.hashing import PageChain, PageKey, image_page_key
from engine.memory.images import Images
from engine.memory.large_pool import LargePool
from engine.memory.policies import LayerPolicy, policy_for
from engine.memory.small_pool import RequestKey, SmallPool
from engine.memory.spec import IMAGE_KINDS, NULL_PAGE, PoolPlan

SequenceKey = int

#: Subtracted from the time stamp of a page that its sequence needs no more although it lives on: such pages go before
#: all that some sequence was using when it ended. Without it what falls out of the windows of running sequences looks
#: younger than the ends of waiting conversations, and those are lost first. Two exceptions: pages behind which requests
#: have branched off, and, for text seen for the first time, the last ones before the live pages, because the next
#: request may leave this text a little before its end.
_DEMOTION = 1 << 40


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
    images: Images = ()
    salt: bytes = b""
    num_slots: int = 0
    num_filled: int = 0
    next_boundary: int = 0  # nothing to publish or drop before that many tokens are filled
    may_share_tail: bool = False
    last_access: int = 0
    #: Where this sequence's text left what full attention has cached of earlier ones: a likely end of later hits.
    branch: int = 0
    is_suspended: bool = False  # its pages lie elsewhere; what follows from its length is kept
    is_new_text: bool = True  # nothing of it was cached when it was admitted
    #: By recurrent type the newest checkpoint: its state has been copied and the page given up, but it is what the next
    #: turn of a conversation will look for, so it counts as touched until there is a newer one.
    checkpoints: dict[int, tuple[int, PageKey]] = field(default_factory=dict)


@dataclass(slots=True)
class CacheCounters:
    """Since the cache was made."""

    num_copies: int = 0  #: small pages copied on write
    num_forks: int = 0
    num_encoded_images: int = 0  #: images whose pages were not cached when a sequence reached them


class KVCache:
    """Owner of the pool's bookkeeping. Sequences are named by the caller's ids, from `open` until `close`."""

    def __init__(
        self, plan: PoolPlan, *, enable_prefix_caching: bool = True, max_step_tokens: int | None = None
    ) -> None:
        """max_step_tokens: most tokens of a sequence that one step computes. Unknown, it is taken to be unbounded, and
        a window is then no reason to admit more."""
        self.plan = plan
        self.rule = AdmissionRule(plan, max_step_tokens)
        self.enable_prefix_caching = enable_prefix_caching
        self.counters = CacheCounters()
        self.large_pool = LargePool(plan.num_large_pages)
        self.pools = [SmallPool(kind, plan.ratio(kind), self.large_pool) for kind in plan.types]
        self._policies: list[LayerPolicy] = [policy_for(kind, max_step_tokens) for kind in plan.types]
        kinds = [kind.spec.kind for kind in plan.types]
        self._kinds = kinds
        self._page_tokens = [kind.page_tokens for kind in plan.types]
        self._num_edge_pages = [
            2 if kind.spec.kind == "recurrent" else kind.spec.span // (4 * kind.page_tokens) for kind in plan.types
        ]
        self._image_types = [which for which, kind in enumerate(kinds) if kind in IMAGE_KINDS]
        text_types = [which for which, kind in enumerate(kinds) if kind not in IMAGE_KINDS and kind != "budgeted"]
        self._text_page_tokens = {self._page_tokens[which] for which in text_types}
        self._alignment = math.lcm(*self._text_page_tokens)
        # Full attention first: its answer bounds the others and costs one look-up per page of the text.
        self._match_order = sorted(range(len(kinds)), key=lambda which: kinds[which] != "full")
        self._num_full_types = kinds.count("full")
        self._chunk_policies = [
            policy for policy, kind in zip(self._policies, kinds, strict=True) if kind in ("recurrent", "budgeted")
        ]
        self._tables: dict[SequenceKey, _Tables] = {}
        self._step = 0
        self._num_releases = 0

    # Life of a sequence

    def begin_step(self, step: int) -> None:
        """One time stamp for everything that is touched until the next call."""
        assert step >= self._step
        self._step = step

    def open(self, sequence: SequenceKey, request: RequestKey, salt: bytes = b"", images: Images = ()) -> None:
        """Make a sequence known; it holds no pages yet. Sequences of one request are kept close in memory."""
        assert sequence not in self._tables
        num_types = len(self.pools)
        self._tables[sequence] = _Tables(
            request=request,
            pages=[[] for _ in range(num_types)],
            first_live=[0] * num_types,
            num_published=[0] * num_types,
            chains={size: PageChain(size, salt, images) for size in self._text_page_tokens},
            images=images,
            salt=salt,
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

    def can_admit(
        self, lengths: Sequence[int], num_shared_tokens: int = 0, *, num_spare_pages: int = 0, images: Images = ()
    ) -> bool:
        """Whether sequences that grow to these lengths, sharing a prefix, fit beside everything that is used now.

        Cached pages count as room: they are evicted on demand. num_spare_pages of each type must be left over.
        """
        return self._has_room(self.rule.needs(lengths, num_shared_tokens, images), num_spare_pages)

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
        branch = tables.branch
        # All hits of all types are held before anything is allocated or counted: an allocation could evict a hit.
        for pool, pages in zip(self.pools, hits, strict=True):
            for page in pages:
                if page != NULL_PAGE:
                    pool.share(page)
        needs = self.rule.needs(lengths, num_shared_tokens, tables.images)
        remaining = tuple(need - len(pages) + pages.count(NULL_PAGE) for need, pages in zip(needs, hits, strict=True))
        if not self._has_room(remaining, num_spare_pages):
            for pool, pages in zip(self.pools, hits, strict=True):
                for page in pages:
                    if page != NULL_PAGE:
                        pool.release(page, 0)
            return None
        tables.pages = hits
        tables.num_slots = tables.num_filled = num_tokens
        for which, policy in enumerate(self._policies):
            tables.num_published[which] = policy.num_complete(num_tokens, tables.images)
            tables.first_live[which] = policy.first_live_page(num_tokens, tables.images)
        self._set_boundary(tables)
        tables.last_access = self._step
        tables.branch, tables.is_new_text = branch, num_tokens == 0
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
        assert self.chunk_end(start, end) == end
        images = tables.images
        num_found = self._take_cached_images(tables, end) if images else []
        needs = []
        for pool, policy, pages in zip(self.pools, self._policies, tables.pages, strict=True):
            need = max(0, policy.num_entries(end, images) - len(pages))
            if tables.may_share_tail:
                shared = pages[policy.first_written_page(start, images) :]
                need += sum(pool.ref_counts[page] > 1 for page in shared)
            needs.append(need)
        may_take_large = self._prepare(tables.request, needs)
        if may_take_large is None:
            for which, count in num_found:
                for shared_page in tables.pages[which][-count:]:
                    self.pools[which].release(shared_page, self._step)
                del tables.pages[which][-count:]
            return None
        changes: list[TableChange] = []
        copies: list[Copy] = []
        num_slots = []
        first_told = {which: len(tables.pages[which]) - count for which, count in num_found}
        for which, (pool, policy) in enumerate(zip(self.pools, self._policies, strict=True)):
            pages = tables.pages[which]
            first_new = first_told.get(which, len(pages))
            if tables.may_share_tail:
                for index in range(policy.first_written_page(start, images), first_new):
                    if pool.ref_counts[pages[index]] > 1:
                        copy = self._copy_on_write(which, tables, index, may_take_large)
                        copies.append(copy)
                        changes.append(TableChange(which, index, (copy.dst,)))
            if images and self._image_types[:1] == [which]:
                self.counters.num_encoded_images += self._num_images_between(which, tables, end)
            for _ in range(policy.num_entries(end, images) - len(pages)):
                page = pool.allocate(tables.request, may_take_large=may_take_large)
                assert page is not None, "there was room"
                if pages and self._kinds[which] == "recurrent":
                    copies.append(Copy(which, pages[-1], page))  # the state goes on from its last checkpoint
                pages.append(page)
            if len(pages) > first_new:
                changes.append(TableChange(which, first_new, tuple(pages[first_new:])))
            num_slots.append(policy.capacity(len(pages), images))
        if not may_take_large:
            for pool in self.pools:
                pool.give_back_unused(tables.request)
        tables.num_slots = min(num_slots)
        tables.may_share_tail = False
        return Extension(tuple(changes), tuple(copies))

    def chunk_end(self, start: int, end: int) -> int:
        """Up to where positions [start, end) may be computed in one step: recurrent states stop at checkpoints."""
        for policy in self._chunk_policies:
            end = policy.chunk_end(start, end)
        return end

    def advance(self, sequence: SequenceKey, token_ids: Sequence[int], num_filled: int) -> None:
        """The step has written positions up to num_filled: publish full pages, drop those that no layer reads again.

        token_ids are the sequence's tokens, at least num_filled of them.
        """
        tables = self._tables[sequence]
        assert tables.num_filled <= num_filled <= tables.num_slots
        tables.num_filled = num_filled
        if num_filled < tables.next_boundary:
            return
        for which, policy in enumerate(self._policies):
            if self.enable_prefix_caching:
                self._publish(tables, which, token_ids, policy.num_complete(num_filled, tables.images))
            self._drop(tables, which, policy.first_live_page(num_filled, tables.images))
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
        other.images, other.salt, other.branch = tables.images, tables.salt, tables.branch
        other.is_new_text, other.checkpoints = tables.is_new_text, dict(tables.checkpoints)
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
            if which in tables.checkpoints:
                pool.restamp(*tables.checkpoints[which], tables.last_access)
            tables.first_live[which] = tables.num_published[which] = 0
        if tables.num_slots:
            self._num_releases += 1
        tables.num_slots = tables.num_filled = tables.next_boundary = tables.branch = 0
        tables.may_share_tail = tables.is_suspended = False
        tables.checkpoints.clear()

    # Swap: the pages of a preempted sequence lie elsewhere meanwhile

    def suspend(self, sequence: SequenceKey) -> None:
        """Give up all pages of a sequence whose content was put away, and remember how it stood. `resume` follows, or
        `close`."""
        tables = self._tables[sequence]
        for which, pool in enumerate(self.pools):
            for page in tables.pages[which]:
                if page != NULL_PAGE:
                    pool.release(page, tables.last_access)
            tables.pages[which] = []
            if which in tables.checkpoints:
                pool.restamp(*tables.checkpoints[which], tables.last_access)
            # What it has published stays cached or is gone; the pages it comes back with are published anew.
            tables.num_published[which] = min(tables.num_published[which], tables.first_live[which])
        tables.next_boundary = 0
        tables.is_suspended = True
        self._num_releases += 1

    def resume(
        self,
        sequences: Sequence[SequenceKey],
        layout: Sequence[Sequence[Sequence[int]]],
        lengths: Sequence[int],
        num_shared_tokens: int = 0,
        *,
        num_spare_pages: int = 0,
    ) -> list[list[tuple[int, ...]]] | None:
        """New pages for all suspended sequences of a request, in tables of this layout: where it names the same page
        twice they share one, where it names NULL_PAGE they have none.

        Returns the tables; their content must be there before the step reads or copies it. None, with nothing changed,
        where `can_admit` says no to these lengths.
        """
        first = self._tables[sequences[0]]
        request = first.request
        needs = self.rule.needs(lengths, num_shared_tokens, first.images)
        if not self._has_room(needs, num_spare_pages):
            return None
        types = range(len(self.pools))
        wanted = [sorted({page for table in layout for page in table[which]} - {NULL_PAGE}) for which in types]
        assert all(len(pages) <= need for pages, need in zip(wanted, needs, strict=True)), "admission counts them all"
        may_take_large = self._prepare(request, needs)  # growth included, so that the rest is left in whole pages
        assert may_take_large is not None, "there is room"
        new: list[dict[int, int]] = [{NULL_PAGE: NULL_PAGE} for _ in types]
        for which, pool in enumerate(self.pools):
            for page in wanted[which]:
                allocated = pool.allocate(request, may_take_large=may_take_large)
                assert allocated is not None, "there was room"
                new[which][page] = allocated
        if not may_take_large:
            for pool in self.pools:
                pool.give_back_unused(request)
        for sequence, table in zip(sequences, layout, strict=True):
            tables = self._tables[sequence]
            assert tables.is_suspended
            tables.is_suspended, tables.last_access = False, self._step
            for which, pool in enumerate(self.pools):
                tables.pages[which] = [new[which][page] for page in table[which]]
                for page in tables.pages[which]:
                    if page != NULL_PAGE:
                        pool.share(page)
        for which, pool in enumerate(self.pools):
            for page in new[which].values():
                if page != NULL_PAGE:
                    pool.release(page, self._step)  # the reference of its allocation: its sequences have their own
        return [self.page_table(sequence) for sequence in sequences]

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
        """Token positions of used pages without data, per layer type; a shared page counts once. O(sequences)."""
        return [self._unfilled(which) for which in range(len(self.pools))]

    def _unfilled(self, which: int) -> int:
        kind, size = self._kinds[which], self._page_tokens[which]
        filled: dict[int, int] = {}
        if kind == "recurrent":
            return 0
        for tables in self._tables.values():
            pages = tables.pages[which]
            if kind in IMAGE_KINDS:
                end = 0
                for image in tables.images:
                    end += -(-image.num_tokens // size)
                    if end <= len(pages) and pages[end - 1] != NULL_PAGE:
                        filled[pages[end - 1]] = (image.num_tokens - 1) % size + 1
                continue
            num_filled = tables.num_filled
            if kind == "budgeted":
                num_filled = min(num_filled, self.plan.types[which].spec.span)
            for index in range(num_filled // size, len(pages)):
                in_page = min(size, max(0, num_filled - index * size))
                filled[pages[index]] = max(filled.get(pages[index], 0), in_page)
        filled.pop(NULL_PAGE, None)
        return sum(size - in_page for in_page in filled.values())

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page is accounted for. O(pool); for tests and for an idle engine."""
        for which, pool in enumerate(self.pools):
            pool.check_integrity()
            counts: dict[int, int] = {}
            policy = self._policies[which]
            for tables in self._tables.values():
                pages = tables.pages[which]
                if tables.is_suspended:
                    _check(not pages, "a suspended sequence holds pages")
                    continue
                held = [page for page in pages if page != NULL_PAGE]
                for page in held:
                    counts[page] = counts.get(page, 0) + 1
                _check(len(set(held)) == len(held) or bool(tables.images), "a page occurs twice in one table")
                _check(tables.num_slots <= policy.capacity(len(pages), tables.images), "positions without a page")
                _check(NULL_PAGE not in pages[tables.first_live[which] :], "a live page is missing")
                _check(len(held) <= len(pages) - tables.first_live[which], "a dropped page is still held")
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
        tables.branch = 0
        if not self.enable_prefix_caching or limit <= 0:
            return 0, [[] for _ in self.pools]
        images = tables.images
        found: list[dict[int, int]] = [{} for _ in self.pools]
        is_cached = [self._finder(tables, which, token_ids, found[which]) for which in range(len(self.pools))]
        length, is_stable = limit, False
        while not is_stable:
            # Each type shortens the prefix to what is valid for it; what all of them accept is the longest for all.
            before = length
            for number, which in enumerate(self._match_order, start=1):
                length = self._policies[which].longest_hit(is_cached[which], length, images)
                length -= length % self._alignment
                if number == self._num_full_types and before == limit:
                    tables.branch = length
            is_stable = length == before or len(self.pools) == 1
        hits = []
        for pages, policy in zip(found, self._policies, strict=True):
            first_live = policy.first_live_page(length, images)
            num_entries = policy.num_entries(length, images)
            hits.append([pages[i] if i >= first_live else NULL_PAGE for i in range(num_entries)])
        return length, hits

    def _finder(
        self, tables: _Tables, which: int, token_ids: Sequence[int], found: dict[int, int]
    ) -> Callable[[int], bool]:
        """Asks whether a page of the sequence is cached; remembers the pages it finds in `found`."""
        pool = self.pools[which]

        def is_cached(index: int) -> bool:
            if index in found:
                return True
            page = pool.lookup(*self._content(tables, which, token_ids, index))
            if page is None:
                return False
            found[index] = page
            return True

        return is_cached

    def _content(self, tables: _Tables, which: int, token_ids: Sequence[int], index: int) -> tuple[PageKey, bytes]:
        """The name of a page of the sequence, and what it must hold."""
        size = self._page_tokens[which]
        if which in self._image_types:
            for image in tables.images:
                num_pages = -(-image.num_tokens // size)
                if index < num_pages:
                    return image_page_key(image, index, size, tables.salt)
                index -= num_pages
            raise AssertionError("the prompt has no such image")
        chain = tables.chains[size]
        chain.extend(token_ids, index + 1)
        return chain.keys[index], chain.contents[index]

    def _publish(self, tables: _Tables, which: int, token_ids: Sequence[int], num_complete: int) -> None:
        first = tables.num_published[which]
        if num_complete <= first:
            return
        pool, pages, size = self.pools[which], tables.pages[which], self._page_tokens[which]
        prefixes: Sequence[int] = range((first + 1) * size, (num_complete + 1) * size, size)
        if which in self._image_types:
            all_prefixes = [
                image.eviction_prefix for image in tables.images for _ in range(-(-image.num_tokens // size))
            ]
            prefixes = all_prefixes[first:num_complete]
        for index, prefix in zip(range(first, num_complete), prefixes, strict=True):
            key, content = self._content(tables, which, token_ids, index)
            pool.publish(pages[index], key, content, prefix)
        tables.num_published[which] = num_complete

    def _drop(self, tables: _Tables, which: int, first_live: int) -> None:
        """Release pages that the sequence reads no more. They go first, unless requests have branched off there."""
        first = tables.first_live[which]
        if first_live <= first:
            return
        pool, pages, policy = self.pools[which], tables.pages[which], self._policies[which]
        kept = range(
            policy.first_live_page(tables.branch, tables.images), policy.num_entries(tables.branch, tables.images)
        )
        is_image = which in self._image_types
        edge = first_live - self._num_edge_pages[which] if tables.is_new_text else first_live
        for index in range(first, first_live):
            page = pages[index]
            if page == NULL_PAGE:
                continue
            if index in kept:
                pool.keep(page)
            is_worth_more = index >= edge or is_image or pool.is_kept(page)
            stamp = self._step if is_worth_more else self._step - _DEMOTION
            if self._kinds[which] == "recurrent" and self.enable_prefix_caching:
                last = tables.checkpoints.get(which)
                if last is not None and not pool.is_kept(last[0]):
                    pool.restamp(*last, stamp)
                tables.checkpoints[which] = page, tables.chains[self._page_tokens[which]].keys[index]
                stamp = self._step
            pool.release(page, stamp)
            pages[index] = NULL_PAGE
            self._num_releases += 1
        tables.first_live[which] = first_live

    def _num_images_between(self, which: int, tables: _Tables, end: int) -> int:
        """Images before `end` that have no entries yet."""
        num_entries, size, count = 0, self._page_tokens[which], 0
        for image in tables.images:
            num_entries += -(-image.num_tokens // size)
            count += image.position < end and num_entries > len(tables.pages[which])
        return count

    def _take_cached_images(self, tables: _Tables, end: int) -> list[tuple[int, int]]:
        """Share the pages of images that the sequence reaches and someone has cached, whatever text stands before
        them. Returns (layer type, number of entries) for what was added."""
        taken = []
        for which in self._image_types:
            pool, pages, size = self.pools[which], tables.pages[which], self._page_tokens[which]
            num_before, num_entries = len(pages), 0
            for image in tables.images:
                num_pages = -(-image.num_tokens // size)
                num_entries += num_pages
                if image.position >= end:
                    break
                if num_entries <= len(pages):
                    continue
                names = (image_page_key(image, index, size, tables.salt) for index in range(num_pages))
                cached = [pool.lookup(*name) for name in names] if self.enable_prefix_caching else [None]
                if num_entries - num_pages != len(pages) or None in cached:
                    break  # entries come in order: what follows a missing image is allocated with it
                for page in cached:
                    assert page is not None
                    pool.share(page)
                    pages.append(page)
            if len(pages) > num_before:
                taken.append((which, len(pages) - num_before))
        return taken

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
        num_filled, images = tables.num_filled, tables.images
        tables.next_boundary = min([policy.next_event(num_filled, images) for policy in self._policies])


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
