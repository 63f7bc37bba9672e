"""Layers that keep at most so many tokens of a sequence and choose which (PyramidKV and its kin).

A page then holds whatever the layer chose, so nothing is published and no prefix is ever found. Tokens of a step that
are not kept are read from the step's own activations.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images


@dataclass(frozen=True, slots=True)
class BudgetedPolicy:
    page_tokens: int
    budget: int

    def num_entries(self, num_tokens: int, images: Images) -> int:
        return -(-min(num_tokens, self.budget) // self.page_tokens)

    def capacity(self, num_entries: int, images: Images) -> int:
        num_slots = num_entries * self.page_tokens
        return sys.maxsize if num_slots >= self.budget else num_slots

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        return self.num_entries(num_tokens, images)

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        return 0

    def first_written_page(self, position: int, images: Images) -> int:
        return position // self.page_tokens if position < self.budget else 0

    def num_complete(self, num_computed: int, images: Images) -> int:
        return 0

    def next_event(self, num_computed: int, images: Images) -> int:
        return sys.maxsize

    def chunk_end(self, start: int, end: int) -> int:
        return end if start >= self.budget else min(end, self.budget)

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        return 0
