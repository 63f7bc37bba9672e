"""What the layers of a model store per token: the input of the page planner. Plain numbers, no torch."""

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["full"]

#: Large page 0 is never handed out; the small pages cut from it are the null pages of every type. A table entry that
#: is not needed points at NULL_PAGE, and the runner may point padding at it: reading it is harmless, its content is
#: never used.
NUM_NULL_LARGE_PAGES = 1
NULL_PAGE = 0


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Storage of one layer.

    bytes_per_token counts keys and values together: 2 x num_kv_heads x head_dim x itemsize for attention.
    Layers with equal kind, size, dtype and model form one layer type and share page tables.
    """

    kind: LayerKind
    bytes_per_token: int
    dtype: str
    model: str = "main"  #: layers of several models may live in one pool


@dataclass(frozen=True, slots=True)
class LayerType:
    """All layers that store the same thing; they share one page table per sequence."""

    name: str
    spec: LayerSpec
    layer_ids: tuple[int, ...]
    page_tokens: int

    @property
    def layer_page_bytes(self) -> int:
        """Bytes of one layer inside a small page."""
        return self.page_tokens * self.spec.bytes_per_token

    @property
    def small_page_bytes(self) -> int:
        return len(self.layer_ids) * self.layer_page_bytes


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

    @property
    def num_usable_large_pages(self) -> int:
        return self.num_large_pages - NUM_NULL_LARGE_PAGES

    @property
    def pool_bytes(self) -> int:
        return self.num_large_pages * self.large_page_bytes
