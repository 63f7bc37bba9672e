"""Sliding window: a token reads itself and the window - 1 tokens before it; older pages are dropped.

A prefix is a hit where the last ceil((window - 1) / page) pages before its end are cached, or all of a shorter prefix
(Jenga section 5.2; its authors' code asks for one page more than is needed).
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images
from engine.memory.policies.by_position import ByPosition


@dataclass(frozen=True, slots=True)
class WindowPolicy(ByPosition):
    window: int
    max_step_tokens: int | None = None

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        all_pages = -(-num_tokens // self.page_tokens)
        if self.max_step_tokens is None:
            return all_pages
        # A step of c tokens reads window - 1 before its first; what it covers may straddle one page more.
        return min(all_pages, -(-(self.window - 1 + self.max_step_tokens) // self.page_tokens) + 1)

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        return max(0, num_computed - self.window + 1) // self.page_tokens

    def next_event(self, num_computed: int, images: Images) -> int:
        next_drop = (self.first_live_page(num_computed, images) + 1) * self.page_tokens + self.window - 1
        return min(self._page_end(num_computed), next_drop)

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        needed = -(-(self.window - 1) // self.page_tokens)
        end = page = max_tokens // self.page_tokens  # pages [page, end) are cached
        while page > 0 and end - page < needed:
            page -= 1
            if not is_cached(page):
                end = page
        return end * self.page_tokens
