"""Recurrent state (Mamba): a sequence needs only its running state; every page_tokens tokens one state is kept.

Entry i of the table is the running state of the tokens [i * k, (i + 1) * k). Behind the last of them it is final: it is
published as a checkpoint, and the next entry begins as a copy of it. A restored checkpoint is copied in the same way,
and steps must end on checkpoints (Jenga section 5.3).
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.memory.images import Images
from engine.memory.policies.by_position import ByPosition


@dataclass(frozen=True, slots=True)
class RecurrentPolicy(ByPosition):
    """page_tokens: tokens between two checkpoints."""

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        """The running state, and a second page while it is copied."""
        return min(2, -(-num_tokens // self.page_tokens))  # two while a state is copied

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """0: only the running state stays."""
        return 0

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """The running state, or the checkpoint that it will be copied from."""
        return max(0, num_computed - 1) // self.page_tokens

    def next_event(self, num_computed: int, images: Images) -> int:
        """The next checkpoint, and the token behind it, when the checkpoint has been copied."""
        if num_computed % self.page_tokens == 0:
            return num_computed + 1  # the checkpoint has been copied and is no longer needed
        return self._page_end(num_computed)

    def chunk_end(self, start: int, end: int) -> int:
        """At the next checkpoint."""
        return min(end, self._page_end(start))

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """Ends at the last cached checkpoint."""
        num_checkpoints = max_tokens // self.page_tokens
        while num_checkpoints and not is_cached(num_checkpoints - 1):
            num_checkpoints -= 1
        return num_checkpoints * self.page_tokens
