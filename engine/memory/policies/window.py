"""Sliding window: a token reads itself and the window - 1 tokens before it; older pages are dropped.

A prefix is a hit if the last ceil((window - 1) / page) pages before its end are cached, or all pages of a shorter
prefix (Jenga section 5.2; its authors' code asks for one page more than necessary).
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images
from engine.memory.policies.by_position import ByPosition


@dataclass(frozen=True, slots=True)
class WindowPolicy(ByPosition):
    """max_step_tokens: the most tokens of a sequence that one step computes; None: no bound."""

    window: int
    max_step_tokens: int | None = None

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        """A window, a step's tokens, and one page more that they may straddle."""
        all_pages = -(-num_tokens // self.page_tokens)
        if self.max_step_tokens is None:
            return all_pages
        # A step of c tokens reads window - 1 before its first; what it covers may straddle one page more.
        return min(all_pages, -(-(self.window - 1 + self.max_step_tokens) // self.page_tokens) + 1)

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """0: the window moves on."""
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """The page of the first token that the next one reads."""
        return max(0, num_computed - self.window + 1) // self.page_tokens

    def next_event(self, num_computed: int, images: Images) -> int:
        """The end of the page, or the token at which the first page leaves the window."""
        next_drop = (self.first_live_page(num_computed, images) + 1) * self.page_tokens + self.window - 1
        return min(self._page_end(num_computed), next_drop)

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """The pages of the window before the prefix's end must be cached, earlier ones need not."""
        needed = -(-(self.window - 1) // self.page_tokens)
        end = page = max_tokens // self.page_tokens  # pages [page, end) are cached
        while page > 0 and end - page < needed:
            page -= 1
            if not is_cached(page):
                end = page
        return end * self.page_tokens
