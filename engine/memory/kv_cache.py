"""The page tables of all sequences: match, admit, extend, copy on write, publish, fork, free. The facade of memory/.

The scheduler calls it, from one thread. The operations are those of PagedAttention (SOSP'23) section 4; Jenga (arXiv
2503.18292) sections 4 and 5 extend them to several layer types. Token ids matter only as the content of pages, and
requests only as numbers. The cache has no queue and no tensors: it returns the copies and table changes for the device.
"""

from collections.abc import Collection, Sequence

from engine.memory import integrity, retention, suspension
from engine.memory.admission import AdmissionRule
from engine.memory.deferred_frees import DeferredFrees
from engine.memory.growth import NOTHING_CHANGED, CacheCounters, Extension, Growth
from engine.memory.hashing import PageChain
from engine.memory.images import Images
from engine.memory.large_pool import LargePool
from engine.memory.lockstep import LockstepGroup, make_groups
from engine.memory.pool_share import PoolShare
from engine.memory.prefix_match import PrefixMatch, PrefixMatcher, text_page_tokens
from engine.memory.room import Room
from engine.memory.sequence_tables import SequenceTables
from engine.memory.small_pool import RequestKey, SmallPool
from engine.memory.spec import NULL_PAGE, PoolPlan

SequenceKey = int


class KVCache:
    """Owner of the bookkeeping of a model's pages. The caller chooses the ids of sequences; they are valid from `open`
    to `close`."""

    def __init__(
        self,
        plan: PoolPlan,
        *,
        enable_prefix_caching: bool = True,
        max_step_tokens: int | None = None,
        share: PoolShare | None = None,
    ) -> None:
        """max_step_tokens: the most tokens of a sequence that one step computes. None: unbounded; then sequences with a
        window are admitted as if their layers kept every token. share: of a pool that other models' caches share; None:
        the cache has a pool of its own."""
        self.enable_prefix_caching = enable_prefix_caching
        self._is_caching = enable_prefix_caching
        self._max_step_tokens = max_step_tokens
        self.counters = CacheCounters()
        self._frees = DeferredFrees()
        self._tables: dict[SequenceKey, SequenceTables] = {}
        self._step = 0
        self._now = 0  # the time stamp of the step that is being planned
        self._cut_pool(plan, share or PoolShare(LargePool(plan.num_large_pages)))

    def _cut_pool(self, plan: PoolPlan, share: PoolShare) -> None:
        self.plan = plan
        self.rule = AdmissionRule(plan, self._max_step_tokens, share.max_large_pages)
        self._share_of_pool = share
        self.large_pool = share.large_pool
        self.groups = make_groups(plan, self.large_pool, self._max_step_tokens)
        self._use_groups()

    def _use_groups(self, room: Room | None = None) -> None:
        self._room = room or Room(self.rule, self._share_of_pool, self.groups)
        self._matcher = PrefixMatcher(self.groups)
        self._growth = Growth(self.groups, self._room, self._matcher, self._frees, self.counters)
        self._text_page_tokens = text_page_tokens(self.groups)
        self._chunk_policies = [group.policy for group in self.groups if group.kind == "recurrent"]

    # Life of a sequence

    def begin_step(self, step: int) -> None:
        """Pages that are used until the next call get this step as their time stamp."""
        assert step >= self._step
        # A step that is planned again keeps its stamp, unless another model has had a step meanwhile.
        if step > self._step or self.large_pool.now != self._now:
            self._now = self.large_pool.next_stamp()
        self._step = step
        self._frees.begin_step(step)

    def note_launch(self, step: int) -> None:
        """The step that `begin_step` began is in flight from now on: until `note_end` it may read and write any page
        that a sequence holds. A page that is freed meanwhile counts as used until the step has ended."""
        self._frees.launch(step)

    def note_end(self, step: int) -> None:
        """This step and all before it have ended: the pages that were freed while they ran become available."""
        self.large_pool.num_releases += self._frees.end(step)

    def open(self, sequence: SequenceKey, request: RequestKey, salt: bytes = b"", images: Images = ()) -> None:
        """Register a sequence without pages. Sequences of one request share large pages where possible.

        salt: only sequences with the same salt share pages.
        """
        assert sequence not in self._tables
        self._tables[sequence] = self._new_tables(request, salt, images)

    def _new_tables(self, request: RequestKey, salt: bytes, images: Images) -> SequenceTables:
        num_groups = len(self.groups)
        return SequenceTables(
            request=request,
            pages=[[] for _ in range(num_groups)],
            first_live=[0] * num_groups,
            num_published=[0] * num_groups,
            chains={size: PageChain(size, salt, images) for size in self._text_page_tokens},
            images=images,
            salt=salt,
        )

    def close(self, sequence: SequenceKey) -> None:
        """Free the pages of a sequence and forget it."""
        self.free(sequence)
        del self._tables[sequence]

    def end_request(self, request: RequestKey) -> None:
        """The request will allocate no more pages: it has finished or was preempted."""
        for group in self.groups:
            group.pool.end_request(request)

    # Admission

    def can_admit(
        self, lengths: Sequence[int], num_shared_tokens: int = 0, *, num_spare_pages: int = 0, images: Images = ()
    ) -> bool:
        """Whether sequences that grow to these lengths, sharing a prefix, fit beside all used pages.

        Cached pages count as room, because they are evicted on demand. num_spare_pages of each type must stay free.
        """
        return self._room.has(self.rule.needs(lengths, num_shared_tokens, images), num_spare_pages)

    def num_missing(self, lengths: Sequence[int], num_shared_tokens: int = 0, *, num_spare_pages: int = 0) -> int:
        """Large pages that are missing for such sequences; 0: they fit. Arguments: as `can_admit`."""
        return self._room.num_missing(self.rule.needs(lengths, num_shared_tokens), num_spare_pages)

    def fits_after_freeing(self, sequences: Sequence[SequenceKey], lengths: Sequence[int], num_shared: int = 0) -> bool:
        """Whether sequences of one request, which is the only one with pages here, could grow to these lengths if they
        were computed again without any cached content. False: other models use the pages that they need."""
        needs = self.rule.needs(lengths, num_shared, self._tables[sequences[0]].images)
        available = self.large_pool.num_available + self.num_used_large_pages
        if self._share_of_pool.max_large_pages is not None:
            available = min(available, self._share_of_pool.max_large_pages)
        return self.rule.large_pages(needs) <= available

    def match(self, sequence: SequenceKey, token_ids: Sequence[int], max_tokens: int) -> int:
        """Length of the longest cached prefix valid for all layer types, at most max_tokens. Changes nothing."""
        return self._match(self._tables[sequence], token_ids, max_tokens).num_tokens

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

        Returns the length of the prefix; None, with nothing changed, where the rest does not fit (see `can_admit`).
        """
        tables = self._tables[sequence]
        assert tables.num_slots == 0
        match = self._match(tables, token_ids, max_hit)
        # The hits of all types get a reference before any allocation: an allocation could evict a hit.
        self._share(match.pages)
        needs = self.rule.needs(lengths, num_shared_tokens, tables.images)
        remaining = tuple(need - found for need, found in zip(needs, match.num_pages, strict=True))
        if not self._room.has(remaining, num_spare_pages):
            self._unshare(match.pages)
            return None
        num_tokens = match.num_tokens
        tables.pages = list(match.pages)
        tables.num_slots = tables.num_filled = num_tokens
        for group in self.groups:
            tables.num_published[group.index] = group.policy.num_complete(num_tokens, tables.images)
            tables.first_live[group.index] = group.policy.first_live_page(num_tokens, tables.images)
        self._set_boundary(tables)
        tables.last_access = self._now
        tables.branch, tables.is_new_text = match.full_tokens, num_tokens == 0
        return num_tokens

    # Growth

    def extend(self, sequence: SequenceKey, start: int, end: int) -> Extension | None:
        """Make positions [start, end) writable: new pages, and copies of pages that other sequences share.

        Returns the changes for the device; None, with nothing changed, where there is no room.
        """
        tables = self._tables[sequence]
        tables.last_access = self._now
        if end <= tables.num_slots and not tables.may_share_tail:
            return NOTHING_CHANGED
        assert self.chunk_end(start, end) == end
        return self._growth.extend(tables, start, end, self._now, is_caching=self._is_caching)

    def chunk_end(self, start: int, end: int) -> int:
        """The end of the part of [start, end) that one step may compute: recurrent states stop at checkpoints."""
        if end - start == 1:
            return end
        for policy in self._chunk_policies:
            end = policy.chunk_end(start, end)
        return end

    def advance(self, sequence: SequenceKey, token_ids: Sequence[int], num_filled: int) -> None:
        """The step has written positions up to num_filled: publish full pages, drop pages that no layer reads again.

        token_ids: the sequence's tokens, at least num_filled of them.
        """
        tables = self._tables[sequence]
        assert tables.num_filled <= num_filled <= tables.num_slots
        tables.num_filled = num_filled
        if num_filled < tables.next_boundary:
            return
        for group in self.groups:
            if self._is_caching:
                self._publish(tables, group, token_ids)
            first_live = group.policy.first_live_page(num_filled, tables.images)
            if first_live > tables.first_live[group.index]:
                self._drop(tables, group, first_live)
        self._set_boundary(tables)

    def trim(self, sequence: SequenceKey) -> None:
        """Free the pages behind those that the tokens so far need: room for proposed tokens that were wrong."""
        tables = self._tables[sequence]
        for group in self.groups:
            pages = tables.pages[group.index]
            num_needed = group.policy.num_entries(tables.num_filled, tables.images)
            for page in pages[num_needed:]:
                self._frees.release(group.pool, page, tables.last_access)
                self.large_pool.num_releases += 1
            del pages[num_needed:]
        tables.num_slots = min(
            tables.num_slots,
            *(group.policy.capacity(len(tables.pages[group.index]), tables.images) for group in self.groups),
        )

    def fork(self, source: SequenceKey, target: SequenceKey) -> None:
        """Let the target, which is open and has no pages, share all pages of the source. Both copy a shared page before
        they write to it."""
        tables, other = self._tables[source], self._tables[target]
        assert other.num_slots == 0
        self._share(tables.pages)
        tables.copy_to(other)
        other.last_access = self._now
        tables.may_share_tail = other.may_share_tail = True

    def free(self, sequence: SequenceKey) -> None:
        """Give up all pages of a sequence, which stays open. Published pages stay cached until their room is needed."""
        tables = self._tables[sequence]
        self._give_up_pages(tables)
        tables.num_published = [0] * len(self.groups)
        tables.first_live = [0] * len(self.groups)
        tables.num_slots = tables.num_filled = tables.next_boundary = tables.branch = 0
        tables.may_share_tail = tables.is_suspended = False
        tables.checkpoints.clear()

    def withdraw(self, sequence: SequenceKey) -> None:
        """Take the sequence's pages out of the prefix cache: they may hold NaN, those of earlier tokens too, because
        attention multiplies the values of later tokens by zero."""
        for group in self.groups:
            for page in self._tables[sequence].pages[group.index]:
                if page != NULL_PAGE:
                    group.pool.withdraw(page)

    # Swap: the content of a preempted sequence's pages is in the mirror

    def suspend(self, sequence: SequenceKey) -> None:
        """Give up all pages of a sequence whose content was swapped out, and keep how far it is computed. Followed by
        `resume` or `close`."""
        tables = self._tables[sequence]
        self._give_up_pages(tables)
        suspension.suspend(tables)

    def resume(
        self,
        sequences: Sequence[SequenceKey],
        layout: Sequence[Sequence[Sequence[int]]],
        lengths: Sequence[int],
        num_shared_tokens: int = 0,
        *,
        num_spare_pages: int = 0,
    ) -> list[list[tuple[int, ...]]] | None:
        """New pages for all suspended sequences of a request, in tables of this layout (by sequence and layer type):
        entries with the same page share a new page, entries with NULL_PAGE stay NULL_PAGE.

        Returns the tables; the caller swaps their content in before a step reads or copies it. None, with nothing
        changed, where sequences of these lengths do not fit (see `can_admit`).
        """
        request = [self._tables[sequence] for sequence in sequences]
        needs = self.rule.needs(lengths, num_shared_tokens, request[0].images)
        if not self._room.has(needs, num_spare_pages):
            return None
        suspension.resume(request, layout, needs, self.groups, self._room)
        for tables in request:
            tables.last_access = self._now
        return [self.page_table(sequence) for sequence in sequences]

    # A request that needs the whole pool

    def stop_caching(self) -> None:
        """Drop all cached pages, and cache nothing until `go_on_caching`. No sequence holds pages now.

        Cached pages count as room, but a long request may get its pages beside them, in more large pages than it needs.
        Without them a request that has the pool to itself gets all pages that admission counted: a type takes a large
        page only when all its small pages are used."""
        assert self.is_unused
        self._is_caching = False
        self.large_pool.reclaim_all()
        self.large_pool.num_releases += 1

    def go_on_caching(self) -> None:
        """Cache again, if prefix caching is enabled at all."""
        self._is_caching = self.enable_prefix_caching

    # A pool that several models share

    def drop_content(self) -> None:
        """Give all large pages back; what is cached is lost. No sequence holds pages, and no step is in flight."""
        assert self.is_unused
        for pool in self.pools:
            self.large_pool.reclaim_from(pool)
        self.large_pool.num_releases += 1

    def abandon(self) -> None:
        """Give all large pages back in whatever state the cache is, after an error in its model. It cannot be used
        again, and no step may be in flight."""
        self._tables.clear()
        for pool in self.pools:
            self.large_pool.take_away(pool)
        self.large_pool.num_releases += 1

    def cut_again(self, plan: PoolPlan, share: PoolShare) -> None:
        """Use a pool of another layout from now on. The cache has no content; sequences stay open, without pages."""
        assert self.is_unused
        assert not any(pool.num_evictable for pool in self.pools)
        self._cut_pool(plan, share)
        for sequence, tables in self._tables.items():
            self._tables[sequence] = self._new_tables(tables.request, tables.salt, tables.images)

    @property
    def num_used_large_pages(self) -> int:
        """Large pages in which a sequence of this cache, or a step in flight, uses a small page."""
        return self._room.num_used_large_pages

    # Views

    @property
    def pools(self) -> list[SmallPool]:
        """The pool of each lockstep group, in the order of `groups`."""
        return [group.pool for group in self.groups]

    def page_table(self, sequence: SequenceKey) -> list[tuple[int, ...]]:
        """The sequence's small page ids, one table per layer type."""
        tables: list[tuple[int, ...]] = [()] * len(self.plan.types)
        for group, pages in zip(self.groups, self._tables[sequence].pages, strict=True):
            for layer_type, table in zip(group.types, group.pool.tables(pages), strict=True):
                tables[layer_type] = table
        return tables

    def sequences(self) -> Collection[SequenceTables]:
        """The tables of each open sequence, for accounting; read-only."""
        return self._tables.values()

    @property
    def release_count(self) -> int:
        """Grows whenever pages are freed, by any model that shares the pool: a caller without room compares it to know
        when to try again."""
        return self.large_pool.num_releases

    @property
    def is_unused(self) -> bool:
        """Whether no sequence holds a page."""
        return not any(group.pool.num_used for group in self.groups)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page of the pool is accounted for, those of other models included. O(pool);
        for tests and for an idle engine."""
        integrity.check(self.plan, self.large_pool, self.groups, self._tables.values(), self._frees)

    # Private

    def _match(self, tables: SequenceTables, token_ids: Sequence[int], max_tokens: int) -> PrefixMatch:
        if not self._is_caching:
            return self._matcher.no_match()
        return self._matcher.match(tables, token_ids, max_tokens)

    def _share(self, pages_by_group: Sequence[Sequence[int]]) -> None:
        for group, pages in zip(self.groups, pages_by_group, strict=True):
            for page in pages:
                if page != NULL_PAGE:
                    group.pool.share(page)

    def _unshare(self, pages_by_group: Sequence[Sequence[int]]) -> None:
        for group, pages in zip(self.groups, pages_by_group, strict=True):
            for page in pages:
                if page != NULL_PAGE:
                    group.pool.release(page, 0)

    def _give_up_pages(self, tables: SequenceTables) -> None:
        if tables.num_slots:
            self.large_pool.num_releases += 1
        for group in self.groups:
            for page in tables.pages[group.index]:
                if page != NULL_PAGE:
                    self._frees.release(group.pool, page, tables.last_access)
            tables.pages[group.index] = []
            if group.index in tables.checkpoints:
                group.pool.restamp(*tables.checkpoints[group.index], tables.last_access)

    def _publish(self, tables: SequenceTables, group: LockstepGroup, token_ids: Sequence[int]) -> None:
        """Name the pages whose content is final, so that other sequences find them."""
        first = tables.num_published[group.index]
        num_complete = group.policy.num_complete(tables.num_filled, tables.images)
        if num_complete <= first:
            return
        size, pages = group.page_tokens, tables.pages[group.index]
        prefixes: Sequence[int] = range(size, (num_complete + 1) * size, size)
        if group.has_images:
            prefixes = [image.eviction_prefix for image in tables.images for _ in range(-(-image.num_tokens // size))]
        names = tables.page_names(group, token_ids, first, num_complete)
        for index, name in enumerate(names, start=first):
            group.pool.publish(pages[index], name, prefixes[index])
        tables.num_published[group.index] = num_complete

    def _drop(self, tables: SequenceTables, group: LockstepGroup, first_live: int) -> None:
        """Release pages that the sequence no longer reads."""
        for page, last_access in retention.drop(tables, group, first_live, self._now):
            self._frees.release(group.pool, page, last_access)
            self.large_pool.num_releases += 1

    def _set_boundary(self, tables: SequenceTables) -> None:
        """Next fill level at which `advance` has something to do: the end of a page of any type."""
        num_filled, images = tables.num_filled, tables.images
        tables.next_boundary = min([group.policy.next_event(num_filled, images) for group in self.groups])
