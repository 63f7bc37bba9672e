"""Full attention: every token reads every earlier token, so all pages stay and a hit ends at the first miss."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FullPolicy:
    page_tokens: int

    def num_pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    def num_lasting_pages(self, num_tokens: int) -> int:
        return num_tokens // self.page_tokens

    def first_live_page(self, num_computed: int) -> int:
        return 0

    def hit_lengths(self, is_cached: Callable[[int], bool], max_tokens: int) -> list[tuple[int, int]]:
        num_hits = 0
        while (num_hits + 1) * self.page_tokens <= max_tokens and is_cached(num_hits):
            num_hits += 1
        return [(0, num_hits * self.page_tokens)]
