"""What the layers of a model store: the input of the page planner, and its output. Plain numbers, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

LayerKind = Literal["full", "window", "chunked", "recurrent", "cross", "vision", "budgeted"]

#: Large page 0 is never handed out; its small pages are the null pages of every type. A table entry that is not needed
#: is NULL_PAGE, and the runner uses it for padding: it may be read, but its content is never used.
NUM_NULL_LARGE_PAGES = 1
NULL_PAGE = 0

#: Kinds whose pages hold tokens of images instead of tokens of the text.
IMAGE_KINDS = frozenset({"cross", "vision"})

#: Tokens between two checkpoints of a recurrent state, unless its spec says otherwise (Jenga section 5.3).
CHECKPOINT_TOKENS = 512

#: Last tokens of a prompt, whose attention chooses what budgeted layers keep of it; they are kept themselves.
OBSERVED_TOKENS = 8


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Storage of one layer.

    bytes_per_token counts keys and values together: 2 x num_kv_heads x head_dim x itemsize for attention, with its
    scales where it is quantised. A recurrent layer stores one state of bytes_per_token bytes, however long the
    sequence. Layers that are equal in everything here form one layer type and share page tables.
    """

    kind: LayerKind
    bytes_per_token: int
    dtype: str
    model: str = "main"  #: layers of several models may live in one pool
    #: window: tokens a query reads, its own included. chunked: tokens of a chunk. recurrent: tokens between two
    #: checkpoints. budgeted: tokens kept of a sequence. Other kinds ignore it.
    span: int = 0
    part: str = ""  #: "conv" and "ssm" or "delta": the two states of a recurrent layer
    #: The layer reads the keys and values of this earlier layer (an index into the same list) and stores nothing.
    shares_with: int | None = None


class MayShare(Protocol):
    """A layer that may read the keys and values of an earlier one."""

    @property
    def shares_with(self) -> int | None:
        """The earlier layer, as an index into the same list; None: the layer stores its own."""
        ...


def storing_layer(layers: Sequence[MayShare], layer_id: int) -> int:
    """The layer whose pages hold the keys and values of this layer: itself, or the one it shares with, transitively.

    Raises ValueError for a layer that shares with a later one.
    """
    while (owner := layers[layer_id].shares_with) is not None:
        if not 0 <= owner < layer_id:
            raise ValueError(f"layer {layer_id} shares with layer {owner}, which does not come before it")
        layer_id = owner
    return layer_id


@dataclass(frozen=True, slots=True)
class LayerType:
    """All layers that store the same thing, or an equal part of them; they share one page table per sequence.

    For recurrent layers page_tokens is the checkpoint interval: entry i of the table is the state after the tokens up
    to (i + 1) * page_tokens, or, for the last entry, after all tokens so far.
    """

    name: str
    spec: LayerSpec
    layer_ids: tuple[int, ...]
    page_tokens: int
    padding_bytes: int = 0  #: unused bytes at the end of each small page

    @property
    def layer_page_bytes(self) -> int:
        """Bytes of one layer inside a small page."""
        if self.spec.kind == "recurrent":
            return self.spec.bytes_per_token
        return self.page_tokens * self.spec.bytes_per_token

    @property
    def content_bytes(self) -> int:
        """A small page without its padding."""
        return len(self.layer_ids) * self.layer_page_bytes

    @property
    def small_page_bytes(self) -> int:
        """A small page with its padding."""
        return self.content_bytes + self.padding_bytes


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Layout of one pool. Small page s of a type starts at byte s * small_page_bytes and lies in large page
    s // (large_page_bytes / small_page_bytes); layer i of the type starts i * layer_page_bytes further
    (Jenga section 4.2, page-layer order). num_large_pages includes the null page."""

    types: tuple[LayerType, ...]
    large_page_bytes: int
    num_large_pages: int

    def ratio(self, layer_type: LayerType) -> int:
        """Small pages of this type in one large page."""
        return self.large_page_bytes // layer_type.small_page_bytes

    def lockstep_groups(self) -> tuple[tuple[int, ...], ...]:
        """Indices of types whose pages are always allocated and freed together; groups are in the order of their first.

        They keep the same tokens in pages of the same size, so their page tables differ only in the page ids. Most are
        parts of one type; the two states of a Mamba layer in padded pages are another case.
        """
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, kind in enumerate(self.types):
            behaviour = kind.spec.kind, kind.spec.span, kind.page_tokens, kind.small_page_bytes
            groups.setdefault(behaviour, []).append(index)
        return tuple(map(tuple, groups.values()))

    @property
    def smallest_budget(self) -> int | None:
        """Tokens that the budgeted layers with the fewest keep of a sequence; None: no layer has a budget."""
        return min((kind.spec.span for kind in self.types if kind.spec.kind == "budgeted"), default=None)

    @property
    def num_usable_large_pages(self) -> int:
        """Large pages for requests: all but the null page."""
        return self.num_large_pages - NUM_NULL_LARGE_PAGES

    @property
    def pool_bytes(self) -> int:
        """Bytes of the whole pool, null page included."""
        return self.num_large_pages * self.large_page_bytes
