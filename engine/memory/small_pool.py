"""Small pages of one layer type: reference counts, cached content, and the order in which a page is found.

The lower of Jenga's two levels (sections 4 and 5.4). A small page is *used* (reference count above 0), *evictable*
(count 0, holds cached data) or *empty*. Every operation costs O(log pages), plus O(ratio) when a whole large page
changes hands. Knows nothing of sequences, tokens or steps: the facade in kv_cache.py does.
"""

from engine.memory.evictor import EvictionKey, Evictor
from engine.memory.hashing import PageKey
from engine.memory.large_pool import LargePool
from engine.memory.spec import LayerType

_NEVER = -(1 << 62)  # older than every time stamp

RequestKey = int  #: whom a large page is associated with; any number that names a request


class SmallPool:
    """Owner of the small pages in all large pages that this type holds. Small page s lies in large page s // ratio."""

    def __init__(self, layer_type: LayerType, ratio: int, large_pool: LargePool) -> None:
        self.layer_type = layer_type
        self.ratio = ratio
        self.num_used = 0
        self.num_evictable = 0
        self.num_empty = 0  #: empty ones inside large pages that this type holds
        #: Evictable and empty ones in large pages of which some small page is used: no other type could have them.
        self.num_reusable_beside_used = 0
        # What is kept of a page lies in dictionaries, not in arrays over the whole pool: a plan may have dozens of
        # types, and each could own any page.
        self.ref_counts: dict[int, int] = {}  #: of used pages
        self._large_pool = large_pool
        self._keys: dict[int, PageKey] = {}  # of published pages, as the three below
        self._contents: dict[int, bytes] = {}
        self._prefix_tokens: dict[int, int] = {}
        self._is_kept: set[int] = set()
        self._last_access: dict[int, int] = {}
        self._by_key: dict[PageKey, int] = {}
        self._evictor = Evictor()  # evictable small pages, except those in wholly evictable large pages
        self._num_used_in: dict[int, int] = {}
        self._num_evictable_in: dict[int, int] = {}
        # Association (section 4.3): a large page serves one request as long as it can, so that it becomes free as a
        # whole.
        self._empty_in: dict[int, list[int]] = {}  # large page -> its empty small pages; an entry for each one held
        self._holder: dict[int, RequestKey | None] = {}  # large page -> request; None once that has ended
        self._held_by: dict[RequestKey, set[int]] = {}
        self._roomy: dict[RequestKey | None, dict[int, None]] = {}  # holder -> its large pages with an empty small page

    def allocate(self, request: RequestKey, *, may_take_large: bool = True) -> int | None:
        """An empty page with reference count 1, found in the order of Jenga section 5.4; None where there is none.

        may_take_large=False keeps to pages inside large pages that this type already holds.
        """
        large_pool = self._large_pool
        large: int | None
        if request in self._roomy:  # (1) beside the request's other pages
            page = self._take_empty_in(next(iter(self._roomy[request])))
        elif may_take_large and (large := large_pool.take_empty(self)) is not None:  # (2)
            page = self._adopt(large, request)
        elif None in self._roomy:  # (3) left behind by finished requests
            large = next(iter(self._roomy[None]))
            self._associate(large, request)
            page = self._take_empty_in(large)
        elif may_take_large and (large := large_pool.take_evictable(self)) is not None:  # (4)
            page = self._adopt(large, request)
        elif self._roomy:  # (5) beside another request's pages
            page = self._take_empty_in(next(iter(next(iter(self._roomy.values())))))
        elif (victim := self._evictor.pop()) is not None:  # (6)
            page = victim
            self._forget(page)
            self.num_evictable -= 1
            self._num_evictable_in[page // self.ratio] -= 1
        else:
            return None
        self._mark_used(page)
        self.ref_counts[page] = 1
        return page

    def claim_large(self, request: RequestKey) -> bool:
        """Associate one more large page with the request: an empty, else an evictable, else an idle one of any type."""
        pool = self._large_pool
        for take in (pool.take_empty, pool.take_evictable, pool.take_idle):
            if (large := take(self)) is not None:
                self._hold(large, request, list(range(large * self.ratio + self.ratio - 1, large * self.ratio - 1, -1)))
                self.num_empty += self.ratio
                return True
        return False

    def give_back_unused(self, request: RequestKey) -> None:
        """Large pages claimed for the request of which nothing was needed, because it had room elsewhere."""
        for large in list(self._roomy.get(request, ())):
            if self._num_used_in[large] == 0 and self._num_evictable_in[large] == 0:
                self.num_empty -= self.ratio
                self._let_go(large)
                self._large_pool.give_back(large)

    def num_associated_empty(self, request: RequestKey) -> int:
        """Empty pages that step (1) would find for the request."""
        return sum(len(self._empty_in[large]) for large in self._roomy.get(request, ()))

    def share(self, page: int) -> None:
        """One more reference to a used or cached page."""
        count = self.ref_counts.get(page, 0)
        if count == 0:
            self._revive(page)
        self.ref_counts[page] = count + 1

    def release(self, page: int, last_access: int) -> None:
        """One reference less; without any, a page with published content becomes evictable, another one empty."""
        if last_access > self._last_access.get(page, _NEVER):
            self._last_access[page] = last_access
        count = self.ref_counts[page] - 1
        if count:
            self.ref_counts[page] = count
            return
        del self.ref_counts[page]
        large = page // self.ratio
        num_used = self._num_used_in[large] - 1
        self._num_used_in[large] = num_used
        self.num_used -= 1
        self.num_reusable_beside_used += 1 if num_used else 1 - self.ratio
        if page in self._keys:
            self._become_evictable(page, large)
        else:
            del self._last_access[page]
            self._become_empty(page, large)

    def publish(self, page: int, key: PageKey, content: bytes, prefix_tokens: int) -> None:
        """The used page holds this content for good. A content that another page already holds is left to that one."""
        if key not in self._by_key:
            assert page not in self._keys
            self._by_key[key] = page
            self._keys[page] = key
            self._contents[page] = content
            self._prefix_tokens[page] = prefix_tokens

    def lookup(self, key: PageKey, content: bytes) -> int | None:
        """The page that holds this content; token ids are compared, a hash alone is not believed."""
        page = self._by_key.get(key)
        return page if page is not None and self._contents[page] == content else None

    def keep(self, page: int) -> None:
        """Remember of a used page that requests have branched off behind it: see `is_kept`."""
        if page in self._keys:
            self._is_kept.add(page)

    def restamp(self, page: int, key: PageKey, last_access: int) -> None:
        """Change the time stamp of a cached page, if it still holds this content and nobody uses it."""
        if self._keys.get(page) != key or page in self.ref_counts:
            return
        large = page // self.ratio
        is_alone = self._num_evictable_in[large] < self.ratio
        if is_alone:
            self._evictor.remove(page)
        self._last_access[page] = last_access
        if is_alone:
            self._evictor.add(page, self._eviction_key(page))
        for large_pages in (self._large_pool.evictable, self._large_pool.idle):
            if large in large_pages:
                large_pages.remove(large)
                large_pages.add(large, self._newest_key_in(large))

    def is_kept(self, page: int) -> bool:
        """Whether this content is worth its place although its last user needs it no more; forgotten with the
        content."""
        return page in self._is_kept

    def end_request(self, request: RequestKey) -> None:
        """The request will allocate no more: empty pages beside its used and cached ones are anybody's."""
        for large in self._held_by.pop(request, ()):
            self._holder[large] = None
        roomy = self._roomy.pop(request, None)
        if roomy is not None:
            self._roomy.setdefault(None, {}).update(roomy)

    def surrender(self, large_page: int) -> None:
        """The large pool takes this page away: no small page in it is used, what they cache is forgotten."""
        assert self._num_used_in[large_page] == 0
        num_evictable = self._num_evictable_in[large_page]
        for page in self._pages_in(large_page):
            if page in self._keys:
                self._forget(page)
                if num_evictable < self.ratio:
                    self._evictor.remove(page)
        self.num_evictable -= num_evictable
        self.num_empty -= self.ratio - num_evictable
        self._let_go(large_page)

    def published_pages(self) -> list[int]:
        """Used and evictable pages whose content others may find."""
        return list(self._keys)

    def counts_in(self, large_page: int) -> tuple[int, int]:
        """(used, evictable) small pages in a large page that this type holds."""
        return self._num_used_in[large_page], self._num_evictable_in[large_page]

    def _mark_used(self, page: int) -> None:
        large = page // self.ratio
        num_used = self._num_used_in[large]
        if num_used == 0:
            if large in self._large_pool.idle:
                self._large_pool.idle.remove(large)
            self.num_reusable_beside_used += self.ratio - 1
        else:
            self.num_reusable_beside_used -= 1
        self._num_used_in[large] = num_used + 1
        self.num_used += 1

    def _revive(self, page: int) -> None:
        large = page // self.ratio
        num_evictable = self._num_evictable_in[large]
        if num_evictable == self.ratio:
            self._large_pool.evictable.remove(large)
            for other in self._pages_in(large):
                if other != page:
                    self._evictor.add(other, self._eviction_key(other))
        else:
            self._evictor.remove(page)
        self._num_evictable_in[large] = num_evictable - 1
        self.num_evictable -= 1
        self._mark_used(page)

    def _become_evictable(self, page: int, large: int) -> None:
        num_evictable = self._num_evictable_in[large] + 1
        self._num_evictable_in[large] = num_evictable
        self.num_evictable += 1
        if num_evictable == self.ratio:
            for other in self._pages_in(large):
                if other != page:
                    self._evictor.remove(other)
            self._large_pool.evictable.add(large, self._newest_key_in(large))
            return
        self._evictor.add(page, self._eviction_key(page))
        if self._num_used_in[large] == 0:
            self._large_pool.idle.add(large, self._newest_key_in(large))

    def _become_empty(self, page: int, large: int) -> None:
        self.num_empty += 1
        if self._num_used_in[large] == 0:
            if self._num_evictable_in[large] == 0:
                self.num_empty -= self.ratio
                self._let_go(large)
                self._large_pool.give_back(large)
                return
            self._large_pool.idle.add(large, self._newest_key_in(large))
        self._empty_in[large].append(page)
        self._roomy.setdefault(self._holder[large], {})[large] = None

    def _forget(self, page: int) -> None:
        del self._by_key[self._keys.pop(page)]
        del self._contents[page], self._prefix_tokens[page], self._last_access[page]
        self._is_kept.discard(page)

    def _adopt(self, large: int, request: RequestKey) -> int:
        first = large * self.ratio
        self._hold(large, request, list(range(first + self.ratio - 1, first, -1)))
        self.num_empty += self.ratio - 1
        return first

    def _hold(self, large: int, request: RequestKey, empty: list[int]) -> None:
        self._empty_in[large] = empty
        self._num_used_in[large] = self._num_evictable_in[large] = 0
        self._holder[large] = request
        self._held_by.setdefault(request, set()).add(large)
        if empty:
            self._roomy.setdefault(request, {})[large] = None

    def _let_go(self, large: int) -> None:
        holder = self._holder.pop(large)
        del self._num_used_in[large], self._num_evictable_in[large]
        if holder is not None:
            held = self._held_by[holder]
            held.remove(large)
            if not held:
                del self._held_by[holder]
        if self._empty_in.pop(large):
            self._not_roomy(large, holder)

    def _associate(self, large: int, request: RequestKey) -> None:
        """An orphan large page with room gets a new request."""
        self._not_roomy(large, None)
        self._holder[large] = request
        self._held_by.setdefault(request, set()).add(large)
        self._roomy.setdefault(request, {})[large] = None

    def _take_empty_in(self, large: int) -> int:
        empty = self._empty_in[large]
        page = empty.pop()
        if not empty:
            self._not_roomy(large, self._holder[large])
        self.num_empty -= 1
        return page

    def _not_roomy(self, large: int, holder: RequestKey | None) -> None:
        roomy = self._roomy[holder]
        del roomy[large]
        if not roomy:
            del self._roomy[holder]

    def _pages_in(self, large: int) -> range:
        return range(large * self.ratio, (large + 1) * self.ratio)

    def _eviction_key(self, page: int) -> EvictionKey:
        return self._last_access[page], -self._prefix_tokens[page]

    def _newest_key_in(self, large: int) -> EvictionKey:
        """A large page is as old as its newest cached small page (section 5.4)."""
        return max(
            self._eviction_key(page)
            for page in self._pages_in(large)
            if page in self._keys and page not in self.ref_counts
        )

    def check_integrity(self) -> None:
        """Recompute every count and every index from the pages themselves. O(pages); raises AssertionError."""
        used = evictable = empty = beside_used = 0
        evictable_pages: set[int] = set()
        by_key: dict[PageKey, int] = {}
        for large in self._empty_in:
            _check(self._large_pool.owner(large) is self, f"large page {large} is held by two owners")
            pages = self._pages_in(large)
            pages_used = [page for page in pages if page in self.ref_counts]
            pages_evictable = [page for page in pages if page not in self.ref_counts and page in self._keys]
            pages_empty = [page for page in pages if page not in self.ref_counts and page not in self._keys]
            _check(sorted(self._empty_in[large]) == pages_empty, f"large page {large}: list of empty pages")
            _check(self.counts_in(large) == (len(pages_used), len(pages_evictable)), f"large page {large}: counts")
            _check(len(pages_empty) < self.ratio, f"large page {large} is empty and was not given back")
            is_evictable = len(pages_evictable) == self.ratio
            _check((large in self._large_pool.evictable) == is_evictable, f"large page {large}: evictable")
            is_idle = not pages_used and not is_evictable
            _check((large in self._large_pool.idle) == is_idle, f"large page {large}: idle")
            holder = self._holder[large]
            _check(holder is None or large in self._held_by[holder], f"large page {large}: holder")
            _check((large in self._roomy.get(holder, {})) == bool(pages_empty), f"large page {large}: room")
            used, evictable, empty = used + len(pages_used), evictable + len(pages_evictable), empty + len(pages_empty)
            beside_used += self.ratio - len(pages_used) if pages_used else 0
            evictable_pages.update(() if is_evictable else pages_evictable)
            by_key.update({self._keys[page]: page for page in pages if page in self._keys})
        _check((used, evictable, empty) == (self.num_used, self.num_evictable, self.num_empty), "pages by state")
        _check(beside_used == self.num_reusable_beside_used, "reusable pages beside used ones")
        _check(by_key == self._by_key, "a key does not name the one page that has it")
        _check(len(evictable_pages) == len(self._evictor), "evictor size")
        _check(all(page in self._evictor for page in evictable_pages), "evictor content")
        _check(sum(map(len, self._held_by.values())) <= len(self._holder) == len(self._empty_in), "holders")
        _check(all(self._roomy.values()) and all(self._held_by.values()), "empty entries in an index")
        _check(len(self.ref_counts) == used and all(self.ref_counts.values()), "a page outside the pool is used")
        _check(len(self._keys) == len(by_key), "a page outside the pool has a key")
        _check(self._contents.keys() == self._prefix_tokens.keys() == self._keys.keys(), "contents without a key")
        _check(self._is_kept <= self._keys.keys(), "a page without content is kept")
        _check(evictable_pages <= self._last_access.keys() <= self._keys.keys() | self.ref_counts.keys(), "time stamps")
        _check(self._num_used_in.keys() == self._num_evictable_in.keys() == self._empty_in.keys(), "large pages")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
