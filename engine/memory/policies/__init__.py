"""What a kind of layer keeps, drops and can reuse: one policy per layer kind, and the one place that chooses it."""

from collections.abc import Callable
from typing import Protocol

from engine.memory.images import Images
from engine.memory.policies.budgeted import BudgetedPolicy
from engine.memory.policies.chunked import ChunkedPolicy
from engine.memory.policies.full import FullPolicy
from engine.memory.policies.images import CrossPolicy, VisionPolicy
from engine.memory.policies.recurrent import RecurrentPolicy
from engine.memory.policies.window import WindowPolicy
from engine.memory.spec import LayerType

__all__ = [
    "BudgetedPolicy",
    "ChunkedPolicy",
    "CrossPolicy",
    "FullPolicy",
    "LayerPolicy",
    "RecurrentPolicy",
    "VisionPolicy",
    "WindowPolicy",
    "policy_for",
]


class LayerPolicy(Protocol):
    """Pure functions of token counts and of the prompt's images; one object per layer type, no state.

    Lengths are tokens. Page indices count entries of the sequence's table from 0; what an entry covers is the policy's
    own affair.
    """

    def num_entries(self, num_tokens: int, images: Images) -> int:
        """Entries in the table of a sequence of that many tokens, those included that were dropped."""

    def capacity(self, num_entries: int, images: Images) -> int:
        """Up to which position a table of that many entries can be written."""

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        """Most pages a sequence of that many tokens ever holds at once: what admission must count."""

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """Of the pages of that many tokens, those that stay however long the sequence grows: forks share them."""

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """Index of the first page that tokens from position num_computed on still read; earlier ones may be dropped."""

    def first_written_page(self, position: int, images: Images) -> int:
        """Index of the first page that writing from this position on may change; forks need own copies from there."""

    def num_complete(self, num_computed: int, images: Images) -> int:
        """Leading pages whose content is final after that many tokens, so that it can be published."""

    def next_event(self, num_computed: int, images: Images) -> int:
        """Least number of computed tokens above this one at which a page is complete or is no longer live."""

    def chunk_end(self, start: int, end: int) -> int:
        """Up to where [start, end) may be computed in one step; at least one token."""

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """Longest prefix of at most max_tokens whose needed pages are all cached. `is_cached(i)` asks for page i."""


def policy_for(layer_type: LayerType, max_step_tokens: int | None = None) -> LayerPolicy:
    """The policy of a layer type's kind. max_step_tokens bounds how many tokens of a sequence one step computes."""
    spec, page_tokens = layer_type.spec, layer_type.page_tokens
    match spec.kind:
        case "full":
            return FullPolicy(page_tokens)
        case "window":
            return WindowPolicy(page_tokens, spec.span, max_step_tokens)
        case "chunked":
            return ChunkedPolicy(page_tokens, spec.span, max_step_tokens)
        case "recurrent":
            return RecurrentPolicy(page_tokens)
        case "budgeted":
            return BudgetedPolicy(page_tokens, spec.span)
        case "cross":
            return CrossPolicy(page_tokens)
        case "vision":
            return VisionPolicy(page_tokens)
