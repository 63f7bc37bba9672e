"""Paged attention with torch operators, for CPU and as the fallback on CUDA; no loop over sequences.

Sequences of a step are put into few groups of similar size; each group is one batched product, padded to its longest
member. Three forms: a fresh prompt reads no pages at all; one token or a few (decode) multiply against the gathered
keys directly; a longer chunk behind a prefix uses torch's fused attention with a mask.

Reading stale bytes is harmless by construction: padding of a page table points at the sequence's own first page, and
the unwritten tail of a page is zeroed when its first token is written, so that a masked score is never NaN times zero.

T = tokens, B = sequences of a group, Q = queries of each, L = keys of each, H, K = query and key/value heads, D = head
dimension, G = H / K.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from engine.attention.backend import AttentionShape, IntArray, StepLayout
from engine.attention.layout import TypeLayout, small_pages, type_layouts
from engine.memory.spec import PoolPlan

#: Up to that many queries of a sequence, scores are plain matrix products: 3 times as fast as torch's fused attention
#: for one query on CPU (0.46 against 1.56 ms for 32 sequences of 320 tokens, 3 heads x 64, bfloat16, one core).
_MAX_SHORT_QUERIES = 8
#: Contexts are grouped by powers of two from here on; smaller ones together, a group costs about five operator calls.
_MIN_CONTEXT_BUCKET = 256
_MIN_QUERY_BUCKET = 16


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences of a step that are computed together. Padding queries repeat the last one of their sequence."""

    num_sequences: int  #: B
    num_queries: int  #: Q
    rows: torch.Tensor | None  #: [B * Q] rows of the step's tokens; None: all of them in order
    real: torch.Tensor | None  #: which of the B * Q are no padding; None: all
    targets: torch.Tensor | None  #: rows of the step that the real ones go to; None: all of them in order
    part_ids: torch.Tensor | None  #: [2 * B * K * pages] parts to gather; None: fresh prompts, nothing to gather
    mask: torch.Tensor | None  #: short: [B * K, 1 or G * Q, L]; long: [B, 1, Q, L]; 0 or -inf

    @property
    def is_short(self) -> bool:
        return self.num_queries <= _MAX_SHORT_QUERIES


class TorchBackend:
    """Owns the views on the pool; the pool itself belongs to the runner."""

    def __init__(
        self, plan: PoolPlan, pool: torch.Tensor, shapes: tuple[AttentionShape, ...], dtype: torch.dtype
    ) -> None:
        """pool: bytes [plan.pool_bytes]; shapes by layer id."""
        self._shapes = shapes
        self._device = pool.device
        self._dtype = dtype
        self._layouts = type_layouts(plan, shapes)
        self._pages = [small_pages(plan, layout.layer_type, pool) for layout in self._layouts]
        self._type_of = {i: t for t, layout in enumerate(self._layouts) for i in layout.layer_type.layer_ids}
        self._parts = [
            self._layouts[self._type_of[layer_id]].layer_parts(pool, dtype, layer_id) for layer_id in range(len(shapes))
        ]
        self._workspace = torch.empty(0, dtype=dtype, device=pool.device)

    @property
    def workspace_bytes(self) -> int:
        """Most bytes of keys and values that any group has gathered so far."""
        return self._workspace.numel() * self._workspace.itemsize

    def begin(self, layout: StepLayout) -> "TorchStep":
        positions = layout.positions
        sequence_of = np.repeat(np.arange(len(layout.lengths)), layout.lengths)
        stores, groups = [], []
        for type_layout, pages in zip(self._layouts, self._pages, strict=True):
            table = layout.page_tables[type_layout.layer_type.name]
            page_tokens = type_layout.layer_type.page_tokens
            self._clear_new_tails(layout, table, page_tokens, pages)
            page_ids = table[sequence_of, positions // page_tokens]
            stores.append(self._tensor(_store_rows(type_layout, page_ids, positions % page_tokens)))
            groups.append(tuple(self._groups(type_layout, layout, table)))
        return TorchStep(self, stores, groups)

    def attend(self, layer_id: int, query: torch.Tensor, key_value: torch.Tensor, step: "TorchStep") -> torch.Tensor:
        shape = self._shapes[layer_id]
        parts = self._parts[layer_id]
        type_id = self._type_of[layer_id]
        rows = key_value.reshape(-1, shape.head_dim)
        parts.view(-1, shape.head_dim).index_copy_(0, step.store_rows[type_id], rows)
        output: torch.Tensor | None = None
        for group in step.groups[type_id]:
            group_query = _select(query, group)
            if group.part_ids is None:
                result = _attend_fresh(group_query, _select(key_value, group))
            else:
                keys, values = self._gather(parts, group, shape)
                attend = _attend_short if group.is_short else _attend_long
                result = attend(group_query, keys, values, group.mask, shape.scale)
            if group.real is not None:
                result = result.index_select(0, group.real)
            if group.targets is None:
                return result
            if output is None:
                output = result.new_empty(query.shape[0], result.shape[1])
            output.index_copy_(0, group.targets, result)
        assert output is not None
        return output

    def _gather(self, parts: torch.Tensor, group: _Group, shape: AttentionShape) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a group, each [B, K, L, D] contiguous, in a workspace that the next call overwrites."""
        assert group.part_ids is not None
        size = group.part_ids.numel() * parts.shape[1]
        if self._workspace.numel() < size:
            self._workspace = parts.new_empty(size)
        gathered = self._workspace[:size].view(-1, parts.shape[1])
        torch.index_select(parts, 0, group.part_ids, out=gathered)
        keys, values = gathered.view(2, group.num_sequences, shape.num_kv_heads, -1, shape.head_dim).unbind(0)
        return keys, values

    def _clear_new_tails(self, layout: StepLayout, table: IntArray, page_tokens: int, pages: torch.Tensor) -> None:
        """Zero the pages that this step begins but does not fill."""
        ends = layout.starts + layout.lengths
        last_pages = (ends - 1) // page_tokens
        is_begun = (last_pages * page_tokens >= layout.starts) & (ends % page_tokens != 0)
        if is_begun.any():
            page_ids = table[is_begun, last_pages[is_begun]]
            pages.index_fill_(0, self._tensor(page_ids), 0)

    def _groups(self, type_layout: TypeLayout, layout: StepLayout, table: IntArray) -> Iterator[_Group]:
        ends = layout.starts + layout.lengths
        first_rows = np.cumsum(layout.lengths) - layout.lengths
        is_fresh = (layout.starts == 0) & (layout.lengths > 1)
        query_bucket = np.where(layout.lengths == 1, 1, _power_of_two(layout.lengths, _MIN_QUERY_BUCKET))
        context_bucket = np.where(is_fresh, 0, _power_of_two(ends, _MIN_CONTEXT_BUCKET))
        keys = (query_bucket << 32) + context_bucket
        for key in np.unique(keys):
            members = np.flatnonzero(keys == key)
            yield self._group(type_layout, layout, table, members, first_rows, is_alone=len(members) == len(keys))

    def _group(
        self,
        type_layout: TypeLayout,
        layout: StepLayout,
        table: IntArray,
        members: IntArray,
        first_rows: IntArray,
        *,
        is_alone: bool,
    ) -> _Group:
        shape = type_layout.shape
        starts, lengths = layout.starts[members], layout.lengths[members]
        num_queries = int(lengths.max())
        steps = np.minimum(np.arange(num_queries), lengths[:, None] - 1)  # [B, Q]
        rows = (first_rows[members, None] + steps).reshape(-1)
        is_real = (np.arange(num_queries) < lengths[:, None]).reshape(-1)
        is_padded = not bool(is_real.all())
        part_ids = mask = None
        if starts.any() or num_queries == 1:
            part_ids, num_keys = _part_ids(type_layout, table[members], starts + lengths)
            hidden = np.arange(num_keys) > (starts[:, None] + steps)[:, :, None]  # [B, Q, L]
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
            mask.masked_fill_(self._tensor(hidden), float("-inf"))
            if num_queries > _MAX_SHORT_QUERIES:
                mask = mask[:, None]
            else:
                repeats = shape.group_size if num_queries > 1 else 1
                mask = mask.repeat_interleave(shape.num_kv_heads, dim=0).repeat(1, repeats, 1)
        return _Group(
            num_sequences=len(members),
            num_queries=num_queries,
            rows=None if is_alone and not is_padded else self._tensor(rows),
            real=self._tensor(np.flatnonzero(is_real)) if is_padded else None,
            targets=None if is_alone else self._tensor(rows[is_real]),
            part_ids=None if part_ids is None else self._tensor(part_ids),
            mask=mask,
        )

    def _tensor(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


class TorchStep:
    """What all layers of a step share; by layer type."""

    def __init__(
        self, backend: TorchBackend, store_rows: Sequence[torch.Tensor], groups: Sequence[tuple[_Group, ...]]
    ) -> None:
        self._backend = backend
        self.store_rows = store_rows  #: [T * 2 * K] rows of D elements that the step's keys and values go to
        self.groups = groups

    def attend(self, layer_id: int, query: torch.Tensor, key_value: torch.Tensor) -> torch.Tensor:
        return self._backend.attend(layer_id, query, key_value, self)


def _select(tokens: torch.Tensor, group: _Group) -> torch.Tensor:
    """The group's tokens, [B, Q, ...]."""
    chosen = tokens if group.rows is None else tokens.index_select(0, group.rows)
    return chosen.view(group.num_sequences, group.num_queries, *chosen.shape[1:])


def _attend_fresh(query: torch.Tensor, key_value: torch.Tensor) -> torch.Tensor:
    """query [B, Q, H, D], key_value [B, Q, 2, K, D] -> [B * Q, H * D]."""
    keys, values = key_value.transpose(1, 3).unbind(2)  # [B, K, Q, D]
    is_grouped = query.shape[2] != keys.shape[1]
    query = query.transpose(1, 2)
    output = F.scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=is_grouped)
    return output.transpose(1, 2).reshape(-1, query.shape[1] * query.shape[3])


def _attend_long(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """query [B, Q, H, D], keys and values [B, K, L, D], mask [B, 1, Q, L] -> [B * Q, H * D]."""
    is_grouped = query.shape[2] != keys.shape[1]
    query = query.transpose(1, 2)
    output = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale, enable_gqa=is_grouped)
    return output.transpose(1, 2).reshape(-1, query.shape[1] * query.shape[3])


def _attend_short(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """As _attend_long with a mask [B * K, 1 or G * Q, L]: the G query heads of a key head are rows of one product."""
    assert mask is not None
    num_sequences, num_queries, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    packed = query.reshape(*query.shape[:2], num_kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)  # [B, K, G, Q, D]
    packed = packed.reshape(num_sequences * num_kv_heads, -1, head_dim)
    scores = torch.baddbmm(mask, packed, keys.flatten(0, 1).transpose(1, 2), alpha=scale)
    weights = scores.softmax(dim=-1)  # sums in float32 whatever the dtype
    output = torch.bmm(weights, values.flatten(0, 1)).view(num_sequences, num_heads, num_queries, head_dim)
    return output.transpose(1, 2).reshape(-1, num_heads * head_dim)


def _store_rows(type_layout: TypeLayout, page_ids: IntArray, offsets: IntArray) -> IntArray:
    """Rows of D elements, from a layer's first on, for the keys and values of tokens: [T * 2 * K]."""
    page_tokens = type_layout.layer_type.page_tokens
    parts = page_ids[:, None] * type_layout.parts_per_page + np.arange(type_layout.parts_per_layer)
    return (parts * page_tokens + offsets[:, None]).reshape(-1)


def _part_ids(type_layout: TypeLayout, table: IntArray, ends: IntArray) -> tuple[IntArray, int]:
    """Parts that hold the contexts, in the order (key or value, sequence, head, page), and L."""
    page_tokens = type_layout.layer_type.page_tokens
    num_pages = -(-ends // page_tokens)
    longest = int(num_pages.max())
    table = np.where(np.arange(longest) < num_pages[:, None], table[:, :longest], table[:, :1])
    parts = np.arange(type_layout.parts_per_layer).reshape(2, 1, type_layout.shape.num_kv_heads, 1)
    return (table[:, None, :] * type_layout.parts_per_page + parts).reshape(-1), longest * page_tokens


def _power_of_two(values: IntArray, least: int) -> IntArray:
    """The power of two at or above each value, at least `least`."""
    return np.exp2(np.ceil(np.log2(np.maximum(values, least)))).astype(np.int64)
