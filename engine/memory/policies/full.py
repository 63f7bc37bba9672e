"""Full attention: every token reads every earlier token, so all pages stay and a hit ends at the first miss."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images
from engine.memory.policies.by_position import ByPosition


@dataclass(frozen=True, slots=True)
class FullPolicy(ByPosition):
    """Keeps every token; see LayerPolicy."""

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        """All entries: no page is dropped."""
        return -(-num_tokens // self.page_tokens)

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """All full pages."""
        return num_tokens // self.page_tokens

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """0: no page is dropped."""
        return 0

    def next_event(self, num_computed: int, images: Images) -> int:
        """The end of the page."""
        return self._page_end(num_computed)

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """Ends at the first page that is not cached."""
        num_hits = 0
        while (num_hits + 1) * self.page_tokens <= max_tokens and is_cached(num_hits):
            num_hits += 1
        return num_hits * self.page_tokens
