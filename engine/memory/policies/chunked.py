"""Chunked local attention: a token reads its own chunk up to itself; at a chunk's end all its pages are dropped."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images
from engine.memory.policies.by_position import ByPosition


@dataclass(frozen=True, slots=True)
class ChunkedPolicy(ByPosition):
    """max_step_tokens: the most tokens of a sequence that one step computes; None: no bound."""

    chunk_tokens: int
    max_step_tokens: int | None = None

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        """A chunk, a step's tokens, and one page more that they may straddle."""
        all_pages = -(-num_tokens // self.page_tokens)
        if self.max_step_tokens is None:
            return all_pages
        return min(all_pages, -(-(self.chunk_tokens - 1 + self.max_step_tokens) // self.page_tokens) + 1)

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """0: every chunk ends."""
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """The page in which the current chunk begins."""
        return num_computed // self.chunk_tokens * self.chunk_tokens // self.page_tokens

    def next_event(self, num_computed: int, images: Images) -> int:
        """The end of the page or of the chunk."""
        return min(self._page_end(num_computed), (num_computed // self.chunk_tokens + 1) * self.chunk_tokens)

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """The last chunk of a prefix must be cached, earlier ones need not."""
        end = page = max_tokens // self.page_tokens  # pages [page, end) are cached
        while page > self.first_live_page(end * self.page_tokens, images):
            page -= 1
            if not is_cached(page):
                end = page
        return end * self.page_tokens
