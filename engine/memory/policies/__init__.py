"""What a kind of layer keeps, drops and can reuse: one policy per layer kind, and the one place that chooses it."""

from collections.abc import Callable
from typing import Protocol

from engine.memory.policies.full import FullPolicy
from engine.memory.spec import LayerType

__all__ = ["FullPolicy", "LayerPolicy", "policy_for"]


class LayerPolicy(Protocol):
    """Pure functions of token counts; one object per layer type, no state. Lengths are tokens, page indices count
    from 0.
    """

    def num_pages(self, num_tokens: int) -> int:
        """Most pages a sequence of that many tokens ever holds at once: what admission must count."""

    def num_lasting_pages(self, num_tokens: int) -> int:
        """Of the full pages of that many tokens, those that stay however long the sequence grows: forks share them."""

    def first_live_page(self, num_computed: int) -> int:
        """Index of the first page that tokens from position num_computed on still read; earlier ones may be dropped."""

    def hit_lengths(self, is_cached: Callable[[int], bool], max_tokens: int) -> list[tuple[int, int]]:
        """Closed intervals of prefix lengths whose needed pages are all cached, none above max_tokens; 0 is always one.

        `is_cached(i)` asks for page i. Only multiples of the page size inside the intervals count as hits.
        """


def policy_for(layer_type: LayerType) -> LayerPolicy:
    """The policy of a layer type's kind."""
    match layer_type.spec.kind:
        case "full":
            return FullPolicy(layer_type.page_tokens)
