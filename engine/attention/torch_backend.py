"""Paged attention with torch operators, for CPU and as the fallback on CUDA; no loop over sequences.

Sequences of a step are put into few groups of similar size; each group is one batched product, padded to its longest
member. There are three forms. A fresh prompt reads no pages at all. One or a few tokens (decode) multiply with the
gathered keys directly. A longer chunk after a prefix uses torch's fused attention with a mask. With a window, pages are
gathered from the first live one on. A soft cap, sinks, or values that are a part of the keys take plain products.

Reading stale bytes is harmless by construction: padding of a page table points at the sequence's own first live page,
and the unwritten tail of a page is zeroed when its first token is written. So a masked score is never NaN times zero,
even in pages that another layer type has filled before.

T = tokens, B = sequences of a group, Q = queries of each, L = keys of each, H, K = query and key/value heads, D = head
dimension, G = H / K.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from engine.attention.backend import AttentionShape, HeadNorms, IntArray, StepLayout
from engine.attention.budgeted import KeptTokens, keep_tokens, slots_read, store_kept
from engine.attention.layout import TypeLayout, small_pages, type_layouts, types_of_layers
from engine.attention.rotation import Rotation
from engine.attention.stored_pages import Workspace, keys_and_values, stored_pages
from engine.memory.spec import PoolPlan, storing_layer

#: Up to this number of queries of a sequence, scores are plain matrix products: 3 times as fast as torch's fused
#: attention for one query on CPU (0.46 against 1.56 ms for 32 sequences of 320 tokens, 3 heads x 64, bfloat16, one
#: core).
_MAX_SHORT_QUERIES = 8
#: Contexts are grouped by powers of two from this length on. Shorter ones form one group, since a group costs about
#: five operator calls.
_MIN_CONTEXT_BUCKET = 256
_MIN_QUERY_BUCKET = 16
#: Bound on the scores in memory where attention is not fused: 64 MiB in float32.
_MAX_CAPPED_SCORES = 1 << 24


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences of a step that are computed together. Padding queries repeat the last query of their sequence.

    Layer types with equal heads, page sizes and windows use the same groups, but read different pages.
    """

    members: IntArray  #: [B] indices of sequences in the step
    num_queries: int  #: Q
    rows: torch.Tensor | None  #: [B * Q] rows among the step's tokens; None: all of them in order
    real: torch.Tensor | None  #: indices of the B * Q rows that are no padding; None: all
    targets: torch.Tensor | None  #: rows of the step's output for them; None: all of them in order
    entries: IntArray | None  #: [B, pages] entries of page tables to gather; None: fresh prompts, no pages
    #: 0 or -inf; short: [B * K, 1 or G * Q, L]; long: [B, 1, Q, L]; fresh: [1, 1, Q, Q], or None if it is just causal.
    mask: torch.Tensor | None

    @property
    def num_sequences(self) -> int:
        return len(self.members)

    @property
    def is_short(self) -> bool:
        return self.num_queries <= _MAX_SHORT_QUERIES


class TorchBackend:
    """The AttentionBackend in plain torch. Owns the views on the pool; the pool belongs to the runner."""

    def __init__(
        self, plan: PoolPlan, pool: torch.Tensor, shapes: tuple[AttentionShape, ...], dtype: torch.dtype
    ) -> None:
        """pool: bytes [plan.pool_bytes]; shapes by layer id."""
        self.shapes = shapes
        self._device = pool.device
        self._dtype = dtype
        self._layouts = type_layouts(plan, shapes, allow_budgets=True)
        self._pages = [small_pages(plan, layout.layer_type, pool) for layout in self._layouts]
        self._type_of = types_of_layers(self._layouts, shapes)
        self.owners = [storing_layer(shapes, layer_id) for layer_id in range(len(shapes))]
        self._shared = {owner for layer_id, owner in enumerate(self.owners) if owner != layer_id}
        self._needs_scores = [
            any(_needs_scores(shape) for shape, own in zip(shapes, self._type_of, strict=True) if own == which)
            for which in range(len(self._layouts))
        ]
        self._workspace = Workspace(dtype, pool.device)
        self._stored = [stored_pages(layout, pool, self._workspace) for layout in self._layouts]

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return "torch"

    def begin(self, layout: StepLayout) -> "TorchStep":
        """Group the step's sequences, compute their places in the pool, and zero the pages that they begin."""
        positions = layout.positions
        sequence_of = np.repeat(np.arange(len(layout.lengths)), layout.lengths)
        stores, groups, reads = [], [], []
        kept: list[KeptTokens | None] = []
        alike: dict[tuple[object, ...], tuple[_Group, ...]] = {}
        kinds = zip(self._layouts, self._stored, self._pages, self._needs_scores, strict=True)
        for type_layout, stored, pages, needs_scores in kinds:
            table = layout.page_tables[type_layout.layer_type.name]
            shape, page_tokens = type_layout.shape, type_layout.layer_type.page_tokens
            self._clear_new_tails(layout, table, type_layout, pages)
            if type_layout.budget is None:
                page_ids = table[sequence_of, positions // page_tokens]
                stores.append(stored.store_places(page_ids, positions % page_tokens))
                kept.append(None)
                read = layout
            else:
                tokens = keep_tokens(layout, table, type_layout, type_layout.budget, stored)
                kept.append(tokens)
                stores.append(tokens.places)
                read = slots_read(layout, type_layout.budget)
            spec = type_layout.layer_type.spec
            key = (spec.kind, spec.span, page_tokens, shape.num_heads, shape.num_kv_heads, needs_scores)
            if key not in alike:
                alike[key] = tuple(self._groups(type_layout, read, needs_scores))
            groups.append(alike[key])
            reads.append(
                tuple(
                    None if group.entries is None else stored.read_places(table[group.members[:, None], group.entries])
                    for group in alike[key]
                )
            )
        return TorchStep(self, stores, kept, groups, reads)

    def store(
        self,
        layer_id: int,
        query: torch.Tensor,
        key_value: torch.Tensor,
        rotation: Rotation | None,
        head_norms: HeadNorms | None,
        step: "TorchStep",
    ) -> torch.Tensor:
        """query [T, H, D], normed and rotated: it chooses what a layer with a budget keeps. key_value [T, 2 K or K, D],
        overwritten -> [T, 2 or 1, K, D], as a fresh prompt reads them."""
        shape = self.shapes[layer_id]
        keys = key_value[:, : shape.num_kv_heads]
        if head_norms is not None:
            if head_norms.key is not None:
                keys.copy_(_rms_norm(keys, head_norms.key, head_norms.eps))
            if head_norms.has_values:
                assert shape.value_dim is None
                values = key_value[:, shape.num_kv_heads :]
                values.copy_(_rms_norm(values, None, head_norms.eps))
        if rotation is not None:
            rotation.apply_(keys)
        type_id = self._type_of[layer_id]
        key_value = key_value.view(-1, shape.num_parts, shape.num_kv_heads, shape.head_dim)
        kept = step.kept[type_id]
        if kept is None:
            key_value = self._stored[type_id].store(layer_id, key_value, step.store_places[type_id])
        else:
            store_kept(kept, self._stored[type_id], layer_id, query, key_value, shape)
        if layer_id in self._shared:
            step.shared_key_values[layer_id] = key_value
        return key_value

    def turn(self, query: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None) -> None:
        """Norm and rotate queries [T, H, D] in place."""
        if head_norms is not None:
            query.copy_(_rms_norm(query, head_norms.query, head_norms.eps))
        if rotation is not None:
            rotation.apply_(query)

    def read(
        self, layer_id: int, query: torch.Tensor, key_value: torch.Tensor | None, step: "TorchStep"
    ) -> torch.Tensor:
        """query [T, H, D], normed and rotated -> [T, H * output_dim]. key_value: what store returned, of this layer or
        of the one whose keys and values it shares; None: no sequence of the step begins in it."""
        shape = self.shapes[layer_id]
        type_id, owner = self._type_of[layer_id], self.owners[layer_id]
        stored = self._stored[type_id]
        output: torch.Tensor | None = None
        for group, read_places in zip(step.groups[type_id], step.read_places[type_id], strict=True):
            group_query = _select(query, group)
            if read_places is None:
                assert key_value is not None
                result = _attend_fresh(group_query, _select(key_value, group), group.mask, shape)
            else:
                keys, values = stored.gather(owner, read_places, group.num_sequences)
                attend = _attend_short if group.is_short else _attend_long
                result = attend(group_query, keys, values, group.mask, shape)
            if group.real is not None:
                result = result.index_select(0, group.real)
            if group.targets is None:
                return result
            if output is None:
                output = result.new_empty(query.shape[0], result.shape[1])
            output.index_copy_(0, group.targets, result)
        assert output is not None
        return output

    def _clear_new_tails(
        self, layout: StepLayout, table: IntArray, type_layout: TypeLayout, pages: torch.Tensor
    ) -> None:
        """Zero pages that this step begins but does not fill."""
        page_tokens = type_layout.layer_type.page_tokens
        starts, ends = layout.starts, layout.starts + layout.lengths
        if type_layout.budget is not None:
            starts, ends = np.minimum(starts, type_layout.budget), np.minimum(ends, type_layout.budget)
        last_pages = (ends - 1) // page_tokens
        is_begun = (last_pages * page_tokens >= starts) & (ends % page_tokens != 0)
        if is_begun.any():
            page_ids = table[is_begun, last_pages[is_begun]]
            pages.index_fill_(0, self._tensor(page_ids), 0)

    def _groups(self, type_layout: TypeLayout, layout: StepLayout, needs_scores: bool) -> Iterator[_Group]:
        ends = layout.starts + layout.lengths
        first_rows = np.cumsum(layout.lengths) - layout.lengths
        first_keys = _first_keys(type_layout, layout.starts)
        is_fresh = (layout.starts == 0) & (layout.lengths > 1)
        query_bucket = np.where(layout.lengths == 1, 1, _power_of_two(layout.lengths, _MIN_QUERY_BUCKET))
        context_bucket = np.where(is_fresh, 0, _power_of_two(ends - first_keys, _MIN_CONTEXT_BUCKET))
        keys = (query_bucket << 32) + context_bucket
        for key in np.unique(keys):
            members = np.flatnonzero(keys == key)
            is_alone = len(members) == len(keys)
            yield self._group(type_layout, layout, members, first_rows, is_alone=is_alone, needs_scores=needs_scores)

    def _group(
        self,
        type_layout: TypeLayout,
        layout: StepLayout,
        members: IntArray,
        first_rows: IntArray,
        *,
        is_alone: bool,
        needs_scores: bool,
    ) -> _Group:
        shape, page_tokens = type_layout.shape, type_layout.layer_type.page_tokens
        starts, lengths = layout.starts[members], layout.lengths[members]
        num_queries = int(lengths.max())
        steps = np.minimum(np.arange(num_queries), lengths[:, None] - 1)  # [B, Q]
        rows = (first_rows[members, None] + steps).reshape(-1)
        is_real = (np.arange(num_queries) < lengths[:, None]).reshape(-1)
        is_padded = not bool(is_real.all())
        entries = mask = None
        if starts.any() or num_queries == 1:
            first_keys = _first_keys(type_layout, starts)
            entries = _entries(first_keys // page_tokens, -(-(starts + lengths) // page_tokens))
            key_positions = first_keys[:, None] + np.arange(entries.shape[1] * page_tokens)  # [B, L]
            mask = self._mask((starts[:, None] + steps)[:, :, None], key_positions[:, None], type_layout)  # [B, Q, L]
            if num_queries > _MAX_SHORT_QUERIES:
                mask = mask[:, None]
            else:
                repeats = shape.group_size if num_queries > 1 else 1
                mask = mask.repeat_interleave(shape.num_kv_heads, dim=0).repeat(1, repeats, 1)
        elif needs_scores or 0 < (type_layout.window or type_layout.chunk or 0) < num_queries:
            positions = np.arange(num_queries)
            mask = self._mask(positions[:, None], positions, type_layout)[None, None]
        return _Group(
            members=members,
            num_queries=num_queries,
            rows=None if is_alone and not is_padded else self._tensor(rows),
            real=self._tensor(np.flatnonzero(is_real)) if is_padded else None,
            targets=None if is_alone else self._tensor(rows[is_real]),
            entries=entries,
            mask=mask,
        )

    def _mask(self, queries: IntArray, keys: IntArray, type_layout: TypeLayout) -> torch.Tensor:
        """0 where the query reads the key, -inf elsewhere. queries, keys: positions, which are broadcast."""
        is_hidden = (keys > queries) | (keys < _first_visible(type_layout, queries))
        mask = torch.zeros(is_hidden.shape, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(self._tensor(is_hidden), float("-inf"))

    def _tensor(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


class TorchStep:
    """The AttentionStep of TorchBackend: what all layers of a step share, by layer type."""

    def __init__(
        self,
        backend: TorchBackend,
        store_places: Sequence[torch.Tensor],
        kept: Sequence[KeptTokens | None],
        groups: Sequence[tuple[_Group, ...]],
        read_places: Sequence[tuple[torch.Tensor | None, ...]],
    ) -> None:
        self._backend = backend
        self.store_places = store_places  #: where the step's keys and values are stored
        self.kept = kept  #: what layers with a budget store; None: all tokens
        self.groups = groups
        self.read_places = read_places  #: what each group gathers; None: fresh prompts
        self.shared_key_values: dict[int, torch.Tensor] = {}  #: by layer: the step's own, which later layers read

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """As AttentionStep.attend."""
        backend, shape = self._backend, self._backend.shapes[layer_id]
        query = qkv[:, : shape.num_heads]
        backend.turn(query, rotation, head_norms)
        if shape.shares_with is None:
            key_value: torch.Tensor | None = backend.store(
                layer_id, query, qkv[:, shape.num_heads :], rotation, head_norms, self
            )
        else:
            key_value = self.shared_key_values.get(backend.owners[layer_id])
        return backend.read(layer_id, query, key_value, self)

    def store(self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None) -> None:
        """As SplitAttentionStep.store; not for layers with a budget."""
        num_heads = self._backend.shapes[layer_id].num_heads
        self._backend.store(layer_id, qkv[:, :num_heads], qkv[:, num_heads:], rotation, head_norms, self)

    def read(
        self, layer_id: int, query: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """As SplitAttentionStep.read."""
        self._backend.turn(query, rotation, head_norms)
        return self._backend.read(layer_id, query, None, self)


def _needs_scores(shape: AttentionShape) -> bool:
    """Whether the layer needs what torch's fused attention does not support, or not in bounded memory."""
    return shape.softcap is not None or shape.sinks is not None or shape.value_dim is not None


def _rms_norm(heads: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    normed = F.rms_norm(heads, heads.shape[-1:], None, eps)
    return normed if weight is None else normed * weight.to(heads.dtype)


def _select(tokens: torch.Tensor, group: _Group) -> torch.Tensor:
    """The group's tokens, [B, Q, ...]."""
    chosen = tokens if group.rows is None else tokens.index_select(0, group.rows)
    return chosen.view(group.num_sequences, group.num_queries, *chosen.shape[1:])


def _attend_fresh(
    query: torch.Tensor, key_value: torch.Tensor, mask: torch.Tensor | None, shape: AttentionShape
) -> torch.Tensor:
    """query [B, Q, H, D], key_value [B, Q, 2 or 1, K, D] -> [B * Q, H * output_dim]."""
    keys, values = keys_and_values(key_value.permute(2, 0, 3, 1, 4), shape)  # [B, K, Q, D]
    return _attend_long(query, keys, values, mask, shape)


def _attend_long(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, shape: AttentionShape
) -> torch.Tensor:
    """query [B, Q, H, D], keys [B, K, L, D], values [B, K, L, output_dim], mask [B or 1, 1, Q, L], None: causal ->
    [B * Q, H * output_dim]."""
    if _needs_scores(shape):
        assert mask is not None
        return _attend_unfused(query, keys, values, mask, shape)
    output = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=shape.scale,
        enable_gqa=shape.group_size > 1,
    )
    return output.transpose(1, 2).reshape(-1, query.shape[2] * query.shape[3])


def _attend_unfused(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, shape: AttentionShape
) -> torch.Tensor:
    """As _attend_long, a few queries at a time, so that their scores take bounded memory."""
    num_sequences, num_queries, num_heads, _ = query.shape
    num_kv_heads, num_keys = keys.shape[1:3]
    at_once = max(1, _MAX_CAPPED_SCORES // (num_sequences * num_heads * num_keys))
    outputs = []
    for first in range(0, num_queries, at_once):
        part = query[:, first : first + at_once]
        part_mask = mask[:, :, None, first : first + at_once]  # [B or 1, 1, 1, q, L]
        part_mask = part_mask.expand(num_sequences, num_kv_heads, shape.group_size, -1, -1)
        output = _attend_short(part, keys, values, part_mask.reshape(num_sequences * num_kv_heads, -1, num_keys), shape)
        outputs.append(output.view(num_sequences, part.shape[1], -1))
    return torch.cat(outputs, dim=1).flatten(0, 1)


def _attend_short(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, shape: AttentionShape
) -> torch.Tensor:
    """As _attend_long, with a mask [B * K, 1 or G * Q, L]. The G query heads of a key head are rows of one product."""
    assert mask is not None
    num_sequences, num_queries, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    packed = query.reshape(*query.shape[:2], num_kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)  # [B, K, G, Q, D]
    packed = packed.reshape(num_sequences * num_kv_heads, -1, head_dim)
    transposed = keys.flatten(0, 1).transpose(1, 2)
    if shape.softcap is None:
        scores = torch.baddbmm(mask, packed, transposed, alpha=shape.scale)
    else:
        scores = torch.bmm(packed, transposed).mul_(shape.scale / shape.softcap).tanh_().mul_(shape.softcap).add_(mask)
    if shape.sinks is not None:
        sinks = scores.new_tensor(shape.sinks).view(1, num_kv_heads, -1, 1)
        sinks = sinks.expand(num_sequences, -1, -1, num_queries).reshape(len(scores), -1, 1)
        scores = torch.cat((scores, sinks), dim=-1)
    weights = scores.softmax(dim=-1)[..., : keys.shape[2]]  # sums in float32 whatever the dtype
    output = torch.bmm(weights, values.flatten(0, 1)).view(num_sequences, num_heads, num_queries, -1)
    return output.transpose(1, 2).reshape(-1, num_heads * shape.output_dim)


def _first_keys(type_layout: TypeLayout, starts: IntArray) -> IntArray:
    """Position of the first key that each sequence reads: the start of its first live page. starts: position of its
    first query."""
    page_tokens = type_layout.layer_type.page_tokens
    return _first_visible(type_layout, starts) // page_tokens * page_tokens


def _first_visible(type_layout: TypeLayout, positions: IntArray) -> IntArray:
    """Position of the first key that the query of each position reads."""
    if type_layout.window is not None:
        return np.maximum(0, positions - type_layout.window + 1)
    if type_layout.chunk is not None:
        return positions // type_layout.chunk * type_layout.chunk
    return np.zeros_like(positions)


def _entries(first_pages: IntArray, end_pages: IntArray) -> IntArray:
    """[B, pages]: entries [first, end) of each table, padded with the first."""
    longest = int((end_pages - first_pages).max())
    entries = first_pages[:, None] + np.arange(longest)
    return np.where(entries < end_pages[:, None], entries, first_pages[:, None])


def _power_of_two(values: IntArray, least: int) -> IntArray:
    """The power of two at or above each value, at least `least`."""
    return np.exp2(np.ceil(np.log2(np.maximum(values, least)))).astype(np.int64)
