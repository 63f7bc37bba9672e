"""Small pages of one layer type: reference counts, cached content, and the order in which allocation looks for a page.

The lower of Jenga's two levels (sections 4 and 5.4). A small page is *used* (reference count above 0), *evictable*
(count 0, holds cached data) or *empty*. Every operation costs O(log pages), plus O(ratio) when a whole large page
changes its owner.

Types in lockstep (PoolPlan.lockstep_groups) share one pool. Every operation on a page of one type also applies to the
corresponding pages of the others, so only the pages of the first type are recorded. With the 31 page tables of
Gemma-3-27B that makes a step of 256 decodes seven times faster. Knows no sequences, tokens or steps: kv_cache.py does.
"""

from collections.abc import Iterator, Sequence

from engine.memory.evictor import EvictionKey, Evictor
from engine.memory.hashing import PageName
from engine.memory.large_pool import LargePool
from engine.memory.spec import NULL_PAGE, LayerType

_NEVER = -(1 << 62)  # older than every time stamp

RequestKey = int  #: the request that a large page is associated with


class SmallPool:
    """Owner of the small pages in all large pages that its types hold. Small page s lies in large page s // ratio.

    "Page" is a small page of the first type; `beside` gives the corresponding pages of the others. "Row" is a large
    page of the first type with the corresponding large pages of the others.
    """

    def __init__(self, layer_type: LayerType, ratio: int, large_pool: LargePool, width: int = 1) -> None:
        """layer_type: the first of `width` types in lockstep."""
        self.layer_type = layer_type
        self.ratio = ratio
        self.width = width
        self.num_used = 0
        self.num_used_rows = 0  #: rows with a used page
        self.num_references = 0  #: to used pages; a page that k sequences read has k
        self.num_evictable = 0
        self.num_empty = 0  #: empty pages inside large pages that this pool holds
        #: Evictable and empty pages in large pages with a used small page: no other pool could take them.
        self.num_reusable_beside_used = 0
        # Dictionaries instead of arrays over the whole pool: a plan may have dozens of types that are not in
        # lockstep, and each could own any page.
        self.ref_counts: dict[int, int] = {}  #: of used pages
        self._large_pool = large_pool
        self._names: dict[int, PageName] = {}  # of published pages, like the next two
        self._eviction_keys: dict[int, EvictionKey] = {}  # by its last release
        self._is_kept: set[int] = set()
        self._by_name: dict[PageName, int] = {}
        self._evictor = Evictor()  # evictable small pages, except those in wholly evictable rows
        self._num_used_in: dict[int, int] = {}  # by row, like all below
        self._num_evictable_in: dict[int, int] = {}
        self._rows: dict[int, Sequence[int]] = {}  # the large pages of a row; empty for a width of 1
        # Association (section 4.3): a large page serves one request as long as possible, so that it becomes free as
        # a whole. Rows of one page are never partly empty, and have entries here only between claim and use.
        self._empty_in: dict[int, list[int]] = {}  # its empty small pages
        self._holder: dict[int, RequestKey | None] = {}  # request; None once that has ended
        self._held_by: dict[RequestKey, set[int]] = {}
        self._roomy: dict[RequestKey | None, dict[int, None]] = {}  # holder -> its rows with an empty small page

    def allocate(self, request: RequestKey, *, may_take_large: bool = True) -> int | None:
        """A page with reference count 1, found in the order of Jenga section 5.4; None where there is none.

        may_take_large=False: only pages inside large pages that this pool already holds.
        """
        roomy, large_pool = self._roomy, self._large_pool
        large: Sequence[int] | None
        if request in roomy:  # (1) beside the request's other pages
            page = self._take_empty_in(next(iter(roomy[request])))
        elif may_take_large and (large := large_pool.take_empty(self)) is not None:  # (2)
            page = self._adopt(large, request)
        elif None in roomy:  # (3) left behind by finished requests
            row = next(iter(roomy[None]))
            self._associate(row, request)
            page = self._take_empty_in(row)
        elif may_take_large and (large := large_pool.take_evictable(self)) is not None:  # (4)
            page = self._adopt(large, request)
        elif roomy:  # (5) beside another request's pages
            page = self._take_empty_in(next(iter(next(iter(roomy.values())))))
        elif (victim := self._evictor.pop()) is not None:  # (6)
            page = victim
            self._forget(page)
            self.num_evictable -= 1
            self._num_evictable_in[page // self.ratio] -= 1
            self._mark_used(page)
        else:
            return None
        self.ref_counts[page] = 1
        self.num_references += 1
        return page

    @property
    def page_bytes(self) -> int:
        """Bytes of a page and the corresponding pages of the other types."""
        return self.width * self.layer_type.small_page_bytes

    def beside(self, page: int) -> Sequence[int]:
        """The corresponding small page of each type of the pool; NULL_PAGE for NULL_PAGE."""
        if page == NULL_PAGE or self.width == 1:
            return (page,) * self.width
        row, offset = divmod(page, self.ratio)
        if self.ratio == 1:
            return self._rows[row]
        return [large * self.ratio + offset for large in self._rows[row]]

    def tables(self, pages: Sequence[int]) -> list[tuple[int, ...]]:
        """These pages as one page table for each type."""
        if self.width == 1:
            return [tuple(pages)]
        return list(zip(*map(self.beside, pages), strict=True)) if pages else [()] * self.width

    def claim_large(self, request: RequestKey) -> bool:
        """Associate one more row with the request, of empty, else evictable, else idle large pages of any pool. False
        where there is none."""
        large = self._large_pool.take_available(self)
        if large is None:
            return False
        first = large[0] * self.ratio
        self._hold(large, request, list(range(first + self.ratio - 1, first - 1, -1)), num_used=0)
        self.num_empty += self.ratio
        return True

    def give_back_unused(self, request: RequestKey) -> None:
        """Return rows that were claimed for the request and not needed, because it had room elsewhere."""
        for row in list(self._roomy.get(request, ())):
            if self._num_used_in[row] == 0 and self._num_evictable_in[row] == 0:
                self.num_empty -= self.ratio
                self._large_pool.give_back(self._let_go(row))

    def num_associated_empty(self, request: RequestKey) -> int:
        """Empty pages that step (1) of `allocate` would find for the request."""
        return sum(len(self._empty_in[row]) for row in self._roomy.get(request, ()))

    def share(self, page: int) -> None:
        """Add a reference to a used or cached page."""
        count = self.ref_counts.get(page, 0)
        if count == 0:
            self._revive(page)
        self.ref_counts[page] = count + 1
        self.num_references += 1

    def release(self, page: int, last_access: int) -> None:
        """Remove a reference. Without any left, a published page becomes evictable, another page empty."""
        count = self.ref_counts[page] - 1
        self.num_references -= 1
        key = self._eviction_keys.get(page)
        if key is not None and last_access > key[0]:
            self._eviction_keys[page] = last_access, key[1]
        if count:
            self.ref_counts[page] = count
            return
        del self.ref_counts[page]
        row = page // self.ratio
        num_used = self._num_used_in[row] - 1
        self._num_used_in[row] = num_used
        self.num_used -= 1
        if not num_used:
            self.num_used_rows -= 1
        self.num_reusable_beside_used += 1 if num_used else 1 - self.ratio
        if key is not None:
            self._become_evictable(page, row)
        else:
            self._become_empty(page, row)

    def publish(self, page: int, name: PageName, prefix_tokens: int) -> None:
        """The content of this used page is final. If another page has the same name, a referenced page stays the
        canonical one; otherwise the new page replaces it, because it will be needed longer.

        prefix_tokens: length of the prefix that ends with this page, for the eviction order.
        """
        other = self._by_name.get(name)
        if other is not None:
            if other in self.ref_counts:
                return
            is_kept = other in self._is_kept
            self.share(other)
            self._forget(other)
            self.release(other, _NEVER)
            if is_kept:
                self._is_kept.add(page)
        assert page not in self._names
        self._by_name[name] = page
        self._names[page] = name
        self._eviction_keys[page] = _NEVER, -prefix_tokens

    def withdraw(self, page: int) -> None:
        """Undo `publish` of this used page, if it is published: no other sequence finds it from now on."""
        assert page in self.ref_counts
        if page in self._names:
            self._forget(page)

    def lookup(self, name: PageName) -> int | None:
        """The used or cached page of this name. A name contains the token ids, so hash collisions find nothing."""
        return self._by_name.get(name)

    def keep(self, page: int) -> None:
        """Mark a used page after which requests have branched off: see `is_kept`."""
        if page in self._names:
            self._is_kept.add(page)

    def is_kept(self, page: int) -> bool:
        """Whether this content should be evicted late although its last sequence no longer reads it. The mark ends with
        the content."""
        return page in self._is_kept

    def restamp(self, page: int, name: PageName, last_access: int) -> None:
        """Change the time stamp of a cached page, if it still holds this content and has no reference."""
        if self._names.get(page) != name or page in self.ref_counts:
            return
        row = page // self.ratio
        is_alone = self._num_evictable_in[row] < self.ratio
        if is_alone:
            self._evictor.remove(page)
        self._eviction_keys[page] = key = last_access, self._eviction_keys[page][1]
        if is_alone:
            self._evictor.add(page, key)
        for rows in (self._large_pool.evictable, self._large_pool.idle):
            if row in rows:
                rows.remove(row, self.width)
                rows.add(row, self.width, self._newest_key_in(row))

    def end_request(self, request: RequestKey) -> None:
        """The request will allocate no more: any request may take the empty pages in its large pages."""
        for row in self._held_by.pop(request, ()):
            self._holder[row] = None
        roomy = self._roomy.pop(request, None)
        if roomy is not None:
            self._roomy.setdefault(None, {}).update(roomy)

    def surrender(self, row: int) -> Sequence[int]:
        """The large pool reclaims this row, in which no small page is used; its cached content is dropped."""
        assert self._num_used_in[row] == 0
        num_evictable = self._num_evictable_in[row]
        for page in self._pages_in(row):
            if page in self._names:
                self._forget(page)
                if num_evictable < self.ratio:
                    self._evictor.remove(page)
        self.num_evictable -= num_evictable
        self.num_empty -= self.ratio - num_evictable
        return self._let_go(row)

    def published_pages(self) -> list[int]:
        """Used and evictable pages whose content other sequences may find."""
        return list(self._names)

    @property
    def num_rows(self) -> int:
        """Rows that this pool holds."""
        return len(self._num_used_in)

    def rows(self) -> Iterator[tuple[Sequence[int], int, int]]:
        """For each row that this pool holds: its large pages, by type, and the numbers of used and of evictable small
        pages in each of them."""
        for row, num_used in self._num_used_in.items():
            yield self._large_pages(row), num_used, self._num_evictable_in[row]

    def _mark_used(self, page: int) -> None:
        row = page // self.ratio
        num_used = self._num_used_in[row]
        self._num_used_in[row] = num_used + 1
        self.num_used += 1
        if num_used:
            self.num_reusable_beside_used -= 1
            return
        self.num_used_rows += 1
        if self.ratio > 1:
            self.num_reusable_beside_used += self.ratio - 1
            if row in self._large_pool.idle:
                self._large_pool.idle.remove(row, self.width)

    def _revive(self, page: int) -> None:
        row = page // self.ratio
        num_evictable = self._num_evictable_in[row]
        if num_evictable == self.ratio:
            self._large_pool.evictable.remove(row, self.width)
            for other in self._pages_in(row):
                if other != page:
                    self._evictor.add(other, self._eviction_keys[other])
        else:
            self._evictor.remove(page)
        self._num_evictable_in[row] = num_evictable - 1
        self.num_evictable -= 1
        self._mark_used(page)

    def _become_evictable(self, page: int, row: int) -> None:
        num_evictable = self._num_evictable_in[row] + 1
        self._num_evictable_in[row] = num_evictable
        self.num_evictable += 1
        if num_evictable == self.ratio:
            for other in self._pages_in(row):
                if other != page:
                    self._evictor.remove(other)
            self._large_pool.evictable.add(row, self.width, self._newest_key_in(row))
            return
        self._evictor.add(page, self._eviction_keys[page])
        if self._num_used_in[row] == 0:
            self._large_pool.idle.add(row, self.width, self._newest_key_in(row))

    def _become_empty(self, page: int, row: int) -> None:
        self.num_empty += 1
        if self._num_used_in[row] == 0:
            if self._num_evictable_in[row] == 0:
                self.num_empty -= self.ratio
                self._large_pool.give_back(self._let_go(row))
                return
            self._large_pool.idle.add(row, self.width, self._newest_key_in(row))
        self._empty_in[row].append(page)
        self._roomy.setdefault(self._holder[row], {})[row] = None

    def _forget(self, page: int) -> None:
        del self._by_name[self._names.pop(page)], self._eviction_keys[page]
        self._is_kept.discard(page)

    def _adopt(self, large: Sequence[int], request: RequestKey) -> int:
        """Hold a new row and use its first page."""
        first, num_others = large[0] * self.ratio, self.ratio - 1
        self._hold(large, request, list(range(first + num_others, first, -1)) if num_others else [], num_used=1)
        self.num_used += 1
        self.num_used_rows += 1
        self.num_empty += num_others
        self.num_reusable_beside_used += num_others
        return first

    def _hold(self, large: Sequence[int], request: RequestKey, empty: list[int], num_used: int) -> None:
        row = large[0]
        self._num_used_in[row] = num_used
        self._num_evictable_in[row] = 0
        if self.width > 1:
            self._rows[row] = large
        if empty:
            self._empty_in[row] = empty
            self._holder[row] = request
            self._held_by.setdefault(request, set()).add(row)
            self._roomy.setdefault(request, {})[row] = None

    def _let_go(self, row: int) -> Sequence[int]:
        """Forget the row and return its large pages."""
        del self._num_used_in[row], self._num_evictable_in[row]
        if row in self._empty_in:
            self._dissociate(row)
        return self._rows.pop(row) if self.width > 1 else (row,)

    def _large_pages(self, row: int) -> Sequence[int]:
        return self._rows[row] if self.width > 1 else (row,)

    def _associate(self, row: int, request: RequestKey) -> None:
        """An orphan row with room gets a new request."""
        self._not_roomy(row, None)
        self._holder[row] = request
        self._held_by.setdefault(request, set()).add(row)
        self._roomy.setdefault(request, {})[row] = None

    def _dissociate(self, row: int) -> None:
        holder = self._holder.pop(row)
        if self._empty_in.pop(row):
            self._not_roomy(row, holder)
        if holder is not None:
            held = self._held_by[holder]
            held.remove(row)
            if not held:
                del self._held_by[holder]

    def _take_empty_in(self, row: int) -> int:
        empty = self._empty_in[row]
        page = empty.pop()
        if not empty:
            self._not_roomy(row, self._holder[row])
            if self.ratio == 1:
                self._dissociate(row)
        self.num_empty -= 1
        self._mark_used(page)
        return page

    def _not_roomy(self, row: int, holder: RequestKey | None) -> None:
        roomy = self._roomy[holder]
        del roomy[row]
        if not roomy:
            del self._roomy[holder]

    def _pages_in(self, row: int) -> range:
        return range(row * self.ratio, (row + 1) * self.ratio)

    def _newest_key_in(self, row: int) -> EvictionKey:
        """A row is as old as its newest cached small page (section 5.4)."""
        if self.ratio == 1:
            return self._eviction_keys[row]
        return max(
            self._eviction_keys[page]
            for page in self._pages_in(row)
            if page in self._names and page not in self.ref_counts
        )

    def check_integrity(self) -> None:
        """Recompute every count and every index from the pages themselves. O(pages); raises AssertionError."""
        used = evictable = empty = beside_used = used_rows = 0
        evictable_pages: set[int] = set()
        by_name: dict[PageName, int] = {}
        roomy_rows: set[int] = set()
        for large, *counts in self.rows():
            row = large[0]
            _check(len(large) == len(set(large)) == self.width, f"row {row} has {len(large)} large pages")
            _check(all(self._large_pool.owner(page) is self for page in large), f"row {row} is held by two owners")
            pages = self._pages_in(row)
            pages_used = [page for page in pages if page in self.ref_counts]
            pages_evictable = [page for page in pages if page not in self.ref_counts and page in self._names]
            pages_empty = [page for page in pages if page not in self.ref_counts and page not in self._names]
            _check(counts == [len(pages_used), len(pages_evictable)], f"row {row}: counts")
            _check(len(pages_empty) < self.ratio, f"row {row} is empty and was not given back")
            is_evictable = len(pages_evictable) == self.ratio
            _check((row in self._large_pool.evictable) == is_evictable, f"row {row}: evictable")
            is_idle = not pages_used and not is_evictable
            _check((row in self._large_pool.idle) == is_idle, f"row {row}: idle")
            _check(sorted(self._empty_in.get(row, [])) == pages_empty, f"row {row}: list of empty pages")
            _check((row in self._empty_in) == (row in self._holder) == (self.ratio > 1), f"row {row}: association")
            holder = self._holder.get(row)
            _check(holder is None or row in self._held_by[holder], f"row {row}: holder")
            _check((row in self._roomy.get(holder, {})) == bool(pages_empty), f"row {row}: room")
            roomy_rows.update([row] if pages_empty else ())
            used, evictable, empty = used + len(pages_used), evictable + len(pages_evictable), empty + len(pages_empty)
            used_rows += bool(pages_used)
            beside_used += self.ratio - len(pages_used) if pages_used else 0
            evictable_pages.update(() if is_evictable else pages_evictable)
            by_name.update({self._names[page]: page for page in pages if page in self._names})
        _check((used, evictable, empty) == (self.num_used, self.num_evictable, self.num_empty), "pages by state")
        _check(used_rows == self.num_used_rows, "rows with used pages")
        _check(beside_used == self.num_reusable_beside_used, "reusable pages beside used ones")
        _check(by_name == self._by_name, "a name is not that of the one page that has it")
        _check(len(evictable_pages) == len(self._evictor), "evictor size")
        _check(all(page in self._evictor for page in evictable_pages), "evictor content")
        _check(sum(map(len, self._held_by.values())) <= len(self._holder) == len(self._empty_in), "holders")
        _check(all(self._roomy.values()) and all(self._held_by.values()), "empty entries in an index")
        _check(sum(map(len, self._roomy.values())) == len(roomy_rows), "a row has room that is not its own")
        _check(len(self.ref_counts) == used and all(self.ref_counts.values()), "a page outside the pool is used")
        _check(sum(self.ref_counts.values()) == self.num_references, "references")
        _check(len(self._names) == len(by_name), "a page outside the pool has a name")
        _check(self._eviction_keys.keys() == self._names.keys(), "eviction keys of other pages")
        _check(self._is_kept <= self._names.keys(), "a page without content is kept")
        _check(self._num_used_in.keys() == self._num_evictable_in.keys(), "rows")
        _check(self._rows.keys() == (self._num_used_in.keys() if self.width > 1 else set()), "large pages of rows")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
