"""How much of a sequence is cached: the longest prefix that is valid for all types, and images at any position.

Jenga section 5.2. Looks pages up and changes nothing: the caller must take references to the pages of a hit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.memory.lockstep import LockstepGroup
from engine.memory.sequence_tables import SequenceTables
from engine.memory.spec import NULL_PAGE


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """A cached prefix and its pages, which have no reference for the sequence yet."""

    num_tokens: int
    pages: tuple[list[int], ...]  #: by lockstep group; NULL_PAGE for pages that later tokens do not read
    full_tokens: int = 0  #: length that full attention alone has cached: where this text differs from earlier ones

    @property
    def num_pages(self) -> tuple[int, ...]:
        """Number of pages found, by lockstep group."""
        return tuple(len(pages) - pages.count(NULL_PAGE) for pages in self.pages)


class PrefixMatcher:
    """Looks up prefixes in the pools of all groups."""

    def __init__(self, groups: Sequence[LockstepGroup]) -> None:
        self._groups = groups
        self._alignment = math.lcm(*text_page_tokens(groups))
        # Full attention first: its answer bounds the others and costs one look-up per page of the text.
        self._order = sorted(groups, key=lambda group: group.kind != "full")
        self._num_full = sum(group.kind == "full" for group in groups)

    def match(self, tables: SequenceTables, token_ids: Sequence[int], max_tokens: int) -> PrefixMatch:
        """The longest cached prefix of at most max_tokens."""
        limit = max_tokens - max_tokens % self._alignment
        if limit <= 0:
            return self.no_match()
        found: list[dict[int, int]] = [{} for _ in self._groups]
        is_cached = [self._finder(tables, group, token_ids, found[group.index]) for group in self._groups]
        length, full_tokens, is_stable = limit, 0, False
        while not is_stable:
            # Each type shortens the prefix to a length valid for it. A length that all types accept is the longest one.
            before = length
            for number, group in enumerate(self._order, start=1):
                length = group.policy.longest_hit(is_cached[group.index], length, tables.images)
                length -= length % self._alignment
                if number == self._num_full and before == limit:
                    full_tokens = length
            is_stable = length == before or len(self._groups) == 1
        hits = []
        for group, pages in zip(self._groups, found, strict=True):
            first_live = group.policy.first_live_page(length, tables.images)
            num_entries = group.policy.num_entries(length, tables.images)
            hits.append([pages[index] if index >= first_live else NULL_PAGE for index in range(num_entries)])
        return PrefixMatch(length, tuple(hits), full_tokens)

    def no_match(self) -> PrefixMatch:
        """A prefix of no tokens."""
        return PrefixMatch(0, tuple([] for _ in self._groups))

    def cached_images(self, tables: SequenceTables, group: LockstepGroup, end: int) -> list[int]:
        """Cached pages of the images that the sequence reaches next before position `end`, whatever text precedes them.
        Table entries are in order, so the first image that is not wholly cached ends the search."""
        num_entries = len(tables.pages[group.index])
        found: list[int] = []
        for first, image in tables.missing_images(group, end):
            num_pages = -(-image.num_tokens // group.page_tokens)
            names = tables.page_names(group, (), first, first + num_pages)
            pages = [page for name in names if (page := group.pool.lookup(name)) is not None]
            if first != num_entries + len(found) or len(pages) < num_pages:
                break
            found += pages
        return found

    def _finder(
        self, tables: SequenceTables, group: LockstepGroup, token_ids: Sequence[int], found: dict[int, int]
    ) -> Callable[[int], bool]:
        """A function that says whether the page with an index is cached, and adds its id to `found`."""

        def is_cached(index: int) -> bool:
            if index in found:
                return True
            page = group.pool.lookup(tables.page_name(group, token_ids, index))
            if page is None:
                return False
            found[index] = page
            return True

        return is_cached


def text_page_tokens(groups: Sequence[LockstepGroup]) -> set[int]:
    """The page sizes in tokens for which names of the text are needed."""
    return {group.page_tokens for group in groups if not group.has_images and group.kind != "budgeted"}
