"""One policy per kind of layer: what it keeps, drops and can reuse. `policy_for` chooses it."""

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

    Lengths are in tokens. Page indices count entries of the sequence's table from 0; the policy defines which tokens an
    entry covers.
    """

    def num_entries(self, num_tokens: int, images: Images) -> int:
        """Entries in the table of a sequence of that many tokens, dropped ones included."""

    def capacity(self, num_entries: int, images: Images) -> int:
        """Number of leading positions that a table of that many entries can hold."""

    def num_pages(self, num_tokens: int, images: Images = ()) -> int:
        """The most pages that a sequence of that many tokens ever holds at once: what admission counts."""

    def num_lasting_pages(self, num_tokens: int, images: Images = ()) -> int:
        """Pages of that many tokens that stay however long the sequence grows: forks share them."""

    def first_live_page(self, num_computed: int, images: Images) -> int:
        """Index of the first page that tokens from position num_computed on still read; earlier ones may be dropped."""

    def first_written_page(self, position: int, images: Images) -> int:
        """Index of the first page that writing from this position on may change; forks copy pages from there on."""

    def num_complete(self, num_computed: int, images: Images) -> int:
        """Leading pages whose content is final after that many tokens, so that it can be published."""

    def next_event(self, num_computed: int, images: Images) -> int:
        """The next number of computed tokens at which a page is complete or no longer live."""

    def chunk_end(self, start: int, end: int) -> int:
        """The end of the part of [start, end) that one step may compute; at least one token."""

    def longest_hit(self, is_cached: Callable[[int], bool], max_tokens: int, images: Images) -> int:
        """Longest prefix of at most max_tokens whose needed pages are all cached. is_cached: whether page i is."""


def policy_for(layer_type: LayerType, max_step_tokens: int | None = None) -> LayerPolicy:
    """The policy for a layer type. max_step_tokens: most tokens of a sequence that one step computes; None: any."""
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
