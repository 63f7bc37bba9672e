"""Recurrent state (Mamba): a sequence needs its running state only; every page_tokens tokens one state stays behind.

Entry i of the table is the state that runs through the tokens [i * k, (i + 1) * k). When it has reached its end it is
final: it is published as a checkpoint, and going on means to copy it into a new running state first. So a restored
checkpoint is copied in the same way, and steps must end on checkpoints (Jenga section 5.3).
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images
from engine.memory.policies.by_position import ByPosition


@dataclass(frozen=True, slots=True)
class RecurrentPolicy(ByPosition):
    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        return min(2, -(-num_tokens // self.page_tokens))  # two while a state is copied

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        return max(0, num_computed - 1) // self.page_tokens

    def next_event(self, num_computed: int, images: Images) -> int:
        if num_computed % self.page_tokens == 0:
            return num_computed + 1  # the checkpoint has been copied and is not needed any more
        return self._page_end(num_computed)

    def chunk_end(self, start: int, end: int) -> int:
        return min(end, self._page_end(start))

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        num_checkpoints = max_tokens // self.page_tokens
        while num_checkpoints and not is_cached(num_checkpoints - 1):
            num_checkpoints -= 1
        return num_checkpoints * self.page_tokens
