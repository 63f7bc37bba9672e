"""What attention layers store, and where in the byte pool. Only this module turns a PoolPlan into tensor views.

Page-layer order (Jenga section 4.2): small page s of a type starts at byte s * small_page_bytes; layer i of the type
follows i * layer_page_bytes further. Inside a layer's part: [2 (key, value), K heads, page_tokens, D], so that the
tokens of one head in one page are adjacent; where values are a part of the keys, [1 (key), K heads, page_tokens, D].
All layers of a type have equal parts, hence the whole pool is one matrix of equal rows, and one index serves all
layers, each with its own first row.

Keys and values in 8 bits have a float32 scale for every token and head, [2, K heads, page_tokens] after the elements of
the layer's part. The scales lie inside the page, so that code that copies, swaps or shares pages moves them without
knowing of them. They lie after the elements, so that the elements keep the strides with which kernels load 16 at once,
and a page's scales of one head are adjacent: for 16 tokens one cache line, one vector of AVX-512. In float32 they are 3
% of the memory beside 128 channels; float16 scales may overflow (65,504), and lose bits below 6e-5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.attention.backend import AttentionShape, StateShape
from engine.memory.spec import LayerSpec, LayerType, PoolPlan, storing_layer

#: Size of the scale of one token's key or value in one head, if those have 8 bits.
_SCALE_BYTES = 4


def is_quantised(kv_dtype: torch.dtype) -> bool:
    """Whether keys and values of this dtype have 8 bits, and with them scales."""
    return kv_dtype.itemsize == 1


def layer_specs(shapes: tuple[AttentionShape, ...], dtype: torch.dtype, max_model_len: int) -> list[LayerSpec]:
    """What each attention layer stores. dtype: of keys and values. A window or a chunk of max_model_len or more counts
    as none, so that its layers need no type of their own. Layers of different heads are of different types, even where
    they store equally many bytes."""
    specs = []
    heads: dict[LayerSpec, tuple[int, int, int, int]] = {}  # of the first layer of each type
    name = str(dtype).removeprefix("torch.")
    for shape in shapes:
        head_bytes = shape.head_dim * dtype.itemsize + (_SCALE_BYTES if is_quantised(dtype) else 0)
        spec = LayerSpec("full", shape.num_parts * shape.num_kv_heads * head_bytes, name)
        if shape.window is not None and shape.window < max_model_len:
            spec = replace(spec, kind="window", span=shape.window)
        elif shape.chunk is not None and shape.chunk < max_model_len:
            spec = replace(spec, kind="chunked", span=shape.chunk)
        if heads.setdefault(spec, _heads(shape)) != _heads(shape):
            spec = replace(spec, part="x".join(map(str, filter(None, _heads(shape)))))
        specs.append(replace(spec, shares_with=shape.shares_with))
    return specs


def _heads(shape: AttentionShape) -> tuple[int, int, int, int]:
    return shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.value_dim or 0


def state_specs(shapes: tuple[StateShape, ...], checkpoint_tokens: int) -> list[LayerSpec]:
    """What recurrent layers store. Their layer ids follow those of the attention layers."""
    return [
        LayerSpec(
            "recurrent",
            math.prod(shape.shape) * shape.dtype.itemsize,
            str(shape.dtype).removeprefix("torch."),
            span=checkpoint_tokens,
            part=shape.part,
        )
        for shape in shapes
    ]


def num_small_pages(plan: PoolPlan, layer_type: LayerType) -> int:
    """Small pages of this type if the whole pool held no others."""
    return plan.pool_bytes // layer_type.small_page_bytes


def small_pages(plan: PoolPlan, layer_type: LayerType, pool: torch.Tensor) -> torch.Tensor:
    """The pool as a matrix with one row per small page of this type: a view, for copying and clearing whole pages.

    In words of eight bytes if the page size allows it: torch moves rows of bytes six times slower (32 pages of 360 KiB
    cleared in 8.8 against 1.4 ms, one core).
    """
    num_pages = num_small_pages(plan, layer_type)
    pages = pool[: num_pages * layer_type.small_page_bytes].view(num_pages, layer_type.small_page_bytes)
    return pages if layer_type.small_page_bytes % 8 else pages.view(torch.int64)


@dataclass(frozen=True, slots=True)
class TypeLayout:
    """Addresses within the pool of one layer type whose layers all have this shape."""

    layer_type: LayerType
    shape: AttentionShape
    num_pages: int

    @property
    def window(self) -> int | None:
        """Tokens that a query reads, including its own; None: its whole context. Taken from the layer type, since the
        shape may have a window that is as long as the context and counts as none."""
        return self.layer_type.spec.span if self.layer_type.spec.kind == "window" else None

    @property
    def chunk(self) -> int | None:
        """Tokens of a chunk, which its queries do not read beyond; None: there are no chunks."""
        return self.layer_type.spec.span if self.layer_type.spec.kind == "chunked" else None

    @property
    def budget(self) -> int | None:
        """Tokens that the layers keep of a sequence; None: all that queries read."""
        return self.layer_type.spec.span if self.layer_type.spec.kind == "budgeted" else None

    @property
    def kv_dtype(self) -> torch.dtype:
        """Dtype of keys and values."""
        dtype = getattr(torch, self.layer_type.spec.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def is_quantised(self) -> bool:
        """Whether keys and values have 8 bits and scales."""
        return is_quantised(self.kv_dtype)

    @property
    def page_elements(self) -> int:
        """Stride from one small page to the next, with padding and scales."""
        return self.layer_type.small_page_bytes // self.kv_dtype.itemsize

    @property
    def layer_elements(self) -> int:
        """Stride from one layer's part to the next, with scales."""
        return self.layer_type.layer_page_bytes // self.kv_dtype.itemsize

    @property
    def part_elements(self) -> int:
        """Keys, or values, of one head in one page of one layer, which are adjacent: a part."""
        return self.layer_type.page_tokens * self.shape.head_dim

    @property
    def parts_per_layer(self) -> int:
        """Keys and values, or keys alone, of every key/value head."""
        return self.shape.num_parts * self.shape.num_kv_heads

    @property
    def gather_elements(self) -> int:
        """Length of the longest rows that divide both pages and parts: a whole part, unless the padding prevents it."""
        return math.gcd(self.page_elements, self.part_elements)

    @property
    def store_elements(self) -> int:
        """Length of the longest rows that divide both pages and the channels of one token's head."""
        return math.gcd(self.page_elements, self.shape.head_dim)

    def layer_pages(self, pool: torch.Tensor, layer_id: int) -> torch.Tensor:
        """The layer's part of every small page: a strided view [pages, 2 or 1, K, page_tokens, D] of the byte pool."""
        shape = self.shape
        part = self.part_elements
        return pool.view(self.kv_dtype).as_strided(
            (self.num_pages, shape.num_parts, shape.num_kv_heads, self.layer_type.page_tokens, shape.head_dim),
            (self.page_elements, shape.num_kv_heads * part, part, shape.head_dim, 1),
            self._first_element(layer_id),
        )

    def layer_scales(self, pool: torch.Tensor, layer_id: int) -> torch.Tensor | None:
        """The layer's scales: a strided view [pages, 2 or 1, K, page_tokens] in float32. None: keys and values have no
        scales."""
        if not self.is_quantised:
            return None
        num_heads, page_tokens = self.shape.num_kv_heads, self.layer_type.page_tokens
        page_bytes = self.layer_type.small_page_bytes
        first_byte = self._first_element(layer_id) + self.parts_per_layer * self.part_elements
        assert first_byte % _SCALE_BYTES == 0 == page_bytes % _SCALE_BYTES, "scales are not aligned"
        floats = pool[: len(pool) // _SCALE_BYTES * _SCALE_BYTES].view(torch.float32)
        return floats.as_strided(
            (self.num_pages, self.shape.num_parts, num_heads, page_tokens),
            (page_bytes // _SCALE_BYTES, num_heads * page_tokens, page_tokens, 1),
            first_byte // _SCALE_BYTES,
        )

    def layer_rows(self, pool: torch.Tensor, layer_id: int, row_elements: int) -> torch.Tensor:
        """All rows of the pool from the layer's first element on: a contiguous view [rows, row_elements].

        row_elements must divide page_elements and the elements before the layer.
        """
        num_rows = self.num_pages * self.page_elements // row_elements
        rows = pool.view(self.kv_dtype)[: num_rows * row_elements].view(num_rows, row_elements)
        return rows[self._first_element(layer_id) // row_elements :]

    def _first_element(self, layer_id: int) -> int:
        return self.layer_type.layer_ids.index(layer_id) * self.layer_elements


def type_layouts(
    plan: PoolPlan, shapes: tuple[AttentionShape, ...], *, allow_budgets: bool = False
) -> tuple[TypeLayout, ...]:
    """One layout per type of attention layers; shapes by layer id. Layers of a type, and layers that share another's
    keys and values, may differ in scale, soft cap and sinks only: raises ValueError if their heads differ, or if the
    kind of a type is not supported. allow_budgets: whether the caller supports layers that keep a budget of tokens."""
    kinds = {"full", "window", "chunked"} | ({"budgeted"} if allow_budgets else set())
    layouts = []
    for layer_type in plan.types:
        if layer_type.spec.kind == "recurrent":
            continue
        if layer_type.spec.kind not in kinds:
            raise ValueError(f"{layer_type.name}: attention of kind {layer_type.spec.kind} cannot be computed")
        heads = {_heads(shapes[i]) for i in layer_type.layer_ids}
        if len(heads) != 1:
            raise ValueError(f"layers of type {layer_type.name} differ in shape: {sorted(heads)}")
        layouts.append(TypeLayout(layer_type, shapes[layer_type.layer_ids[0]], num_small_pages(plan, layer_type)))
    for layer_id, shape in enumerate(shapes):
        owner = shapes[storing_layer(shapes, layer_id)]
        if (_heads(shape), shape.window) != (_heads(owner), owner.window):
            raise ValueError(f"attention layer {layer_id} differs in shape from the layer that it shares with")
    return tuple(layouts)


def types_of_layers(layouts: Sequence[TypeLayout], shapes: Sequence[AttentionShape]) -> list[int]:
    """For each layer the index of the layout that holds the keys and values that it reads."""
    type_of = {i: which for which, layout in enumerate(layouts) for i in layout.layer_type.layer_ids}
    return [type_of[storing_layer(shapes, layer_id)] for layer_id in range(len(shapes))]
