"""Layers that keep at most a budget of tokens of a sequence and choose which ones (PyramidKV and similar methods).

A page then holds the tokens that the layer chose, so no page is published and no prefix is found. Tokens of a step that
are not kept are read from the step's own activations.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images


@dataclass(frozen=True, slots=True)
class BudgetedPolicy:
    """Pages for `budget` tokens; see LayerPolicy."""

    page_tokens: int
    budget: int

    def num_entries(self, num_tokens: int, images: Images) -> int:
        """Entries for the kept tokens, `budget` at most."""
        return -(-min(num_tokens, self.budget) // self.page_tokens)

    def capacity(self, num_entries: int, images: Images) -> int:
        """Unbounded once the entries cover the whole budget."""
        num_slots = num_entries * self.page_tokens
        return sys.maxsize if num_slots >= self.budget else num_slots

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        """All entries: no page is dropped."""
        return self.num_entries(num_tokens, images)

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """0: the layer may rewrite every page."""
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """0: no page is dropped."""
        return 0

    def first_written_page(self, position: int, images: Images) -> int:
        """0: writing goes on to any page once the budget is full, and a fork copies pages at its first token only."""
        return 0

    def num_complete(self, num_computed: int, images: Images) -> int:
        """0: no page is ever final."""
        return 0

    def next_event(self, num_computed: int, images: Images) -> int:
        """The largest integer: there is no such event."""
        return sys.maxsize

    def chunk_end(self, start: int, end: int) -> int:
        """Chunks end anywhere as far as pages are concerned; scheduling/budgeted_chunks.py says where they may end."""
        return end

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """0: no page is published."""
        return 0
