"""Steps over paged keys and values for the tests of attention backends: any mixture of chunks, prefixes and pages."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import strategies as st

from engine.attention.backend import AttentionShape, AttentionStep, StepLayout
from engine.attention.layout import TypeLayout, layer_specs, type_layouts
from engine.kernels.reference.store_heads import LARGEST, quantised
from engine.kernels.step_kernels import AttentionOptions, PageScales
from engine.memory.planning.grouping import group_layers
from engine.memory.spec import LayerType, PoolPlan, storing_layer
from tests.engine.attention.oracle import paged_attention, store_key_value

NUM_LAYERS = 2
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
NOWHERE = 2**40  #: a page that does not exist: nothing may follow it


@dataclass(frozen=True)
class Case:
    """A step: how many tokens of each sequence are already there, and how many come now."""

    shape: AttentionShape
    page_tokens: int
    starts: list[int]
    lengths: list[int]
    seed: int
    dtype: torch.dtype
    windows: tuple[int | None, ...] = (None,) * NUM_LAYERS  #: by layer
    chunks: tuple[int | None, ...] = (None,) * NUM_LAYERS  #: by layer; beside no windows
    padding: int = 0  #: elements at the end of the pages of the first type; those of the others have one more each
    kv_dtype: torch.dtype | None = None  #: None: that of the step
    shares: bool = False  #: layers share the keys and values of the first one with an equal window

    @property
    def stored_dtype(self) -> torch.dtype:
        return self.kv_dtype or self.dtype

    @property
    def shapes(self) -> tuple[AttentionShape, ...]:
        chunks = (*self.chunks, *(None,) * len(self.windows))[: len(self.windows)]
        kinds = list(zip(self.windows, chunks, strict=True))
        owners = [kinds.index(kind) if self.shares else index for index, kind in enumerate(kinds)]
        return tuple(
            replace(self.shape, window=window, chunk=chunk, shares_with=None if owner == index else owner)
            for index, ((window, chunk), owner) in enumerate(zip(kinds, owners, strict=True))
        )

    @property
    def plan(self) -> PoolPlan:
        """Room for every type by itself; see `pages_from`."""
        item_bytes = 4 if self.kv_dtype else self.dtype.itemsize
        types = [
            replace(kind, padding_bytes=(self.padding + index) * item_bytes if self.padding else 0)
            for index, kind in enumerate(self._types)
        ]
        num_pages = sum(-(-(s + n) // self.page_tokens) for s, n in zip(self.starts, self.lengths, strict=True)) + 3
        return PoolPlan(tuple(types), max(kind.small_page_bytes for kind in types), num_pages * len(types))

    @property
    def _types(self) -> tuple[LayerType, ...]:
        specs = layer_specs(self.shapes, self.stored_dtype, max_model_len=2**20)
        return group_layers(specs, page_tokens=self.page_tokens)

    def pages_from(self, which: int) -> int:
        """First page of a type that shares no byte with those before: every type has its own part of the pool."""
        plan = self.plan
        return -(-plan.pool_bytes * which // (len(plan.types) * plan.types[which].small_page_bytes)) + 1


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_kv_heads = draw(st.integers(1, 3))
    num_heads = num_kv_heads * draw(st.integers(1, 4))
    head_dim = draw(st.sampled_from([4, 16]))
    shape = AttentionShape(
        num_heads,
        num_kv_heads,
        head_dim,
        softcap=draw(st.sampled_from([None, None, 1.5])),
        score_scale=draw(st.sampled_from([None, 0.2])),
        sinks=draw(st.sampled_from([None, None, tuple(0.7 * head - 2 for head in range(num_heads))])),
        value_dim=draw(st.sampled_from([None, None, head_dim * 3 // 4])),
    )
    sequences = draw(
        st.lists(
            st.tuples(st.sampled_from([0, 0, 1, 5, 16, 33, 300]), st.sampled_from([1, 1, 1, 2, 7, 9, 40])),
            min_size=1,
            max_size=6,
        )
    )
    starts, lengths = map(list, zip(*sequences, strict=True))
    windows = draw(st.sampled_from([(None, None), (None, 20), (1, None, 1), (5, 5), (33, None, 7)]))
    chunks = (None,) * len(windows) if any(windows) else draw(st.sampled_from([(None, None), (20, None), (1, 7)]))
    return Case(
        shape,
        page_tokens=draw(st.sampled_from([1, 4, 7, 16])),
        starts=starts,
        lengths=lengths,
        seed=draw(st.integers(0, 2**20)),
        dtype=draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16])),
        windows=windows,
        chunks=chunks,
        padding=draw(st.sampled_from([0, 0, 3, 64])),
        kv_dtype=draw(st.sampled_from([None, None, torch.int8])),
        shares=draw(st.sampled_from([False, True])),
    )


@dataclass
class Prepared:
    pool: torch.Tensor
    layout: StepLayout
    type_layouts: tuple[TypeLayout, ...]
    query: torch.Tensor
    key_value: torch.Tensor


def prepare(case: Case, poison: float, nowhere: int) -> Prepared:
    """A pool full of poison, but for the tokens before the step that some query reads, written through the oracle.

    Entries of page tables that need no page are `nowhere`.
    """
    generator = torch.Generator().manual_seed(case.seed)
    shape, plan = case.shape, case.plan
    poison_dtype = torch.float32 if case.kv_dtype else case.dtype  # as scales, and of whatever bytes it consists
    pool = torch.full((plan.pool_bytes // poison_dtype.itemsize,), poison, dtype=poison_dtype).view(torch.uint8)
    layouts = type_layouts(plan, case.shapes)
    starts, lengths = np.array(case.starts), np.array(case.lengths)
    num_pages = -(-(starts + lengths) // case.page_tokens)
    tables = {}
    for which, type_layout in enumerate(layouts):
        order = torch.randperm(int(num_pages.sum()), generator=generator).numpy() + case.pages_from(which)
        table = np.full((len(starts), num_pages.max()), nowhere)
        for row, own in enumerate(np.split(order, np.cumsum(num_pages)[:-1])):
            table[row, : len(own)] = own
        tables[type_layout.layer_type.name] = table
        for layer_id in type_layout.layer_type.layer_ids:
            pages, scales = type_layout.layer_pages(pool, layer_id), type_layout.layer_scales(pool, layer_id)
            for row, start in enumerate(case.starts):
                size = (start, shape.num_parts, shape.num_kv_heads, shape.head_dim)
                past = torch.randn(size, generator=generator).to(case.dtype)
                window, chunk = case.shapes[layer_id].window, case.shapes[layer_id].chunk
                first_live = 0 if window is None else max(0, start - window + 1) // case.page_tokens
                if chunk is not None:
                    first_live = start // chunk * chunk // case.page_tokens
                table[row, :first_live] = nowhere
                positions = np.arange(first_live * case.page_tokens, start)
                page_ids = torch.from_numpy(table[row, positions // case.page_tokens])
                if len(positions):
                    # What an engine guarantees: the page of the last token has no poison behind it.
                    pages[page_ids[-1]] = 0
                    if scales is not None:
                        scales[page_ids[-1]] = 0
                store(past[positions], pages, scales, page_ids, torch.from_numpy(positions % case.page_tokens))
    num_tokens = int(lengths.sum())
    query = torch.randn(num_tokens, shape.num_heads, shape.head_dim, generator=generator).to(case.dtype)
    size = (num_tokens, shape.num_parts, shape.num_kv_heads, shape.head_dim)
    key_value = torch.randn(size, generator=generator).to(case.dtype)
    return Prepared(pool, StepLayout(starts, lengths, tables), layouts, query, key_value)


def store(
    key_value: torch.Tensor,
    pages: torch.Tensor,
    scales: torch.Tensor | None,
    page_ids: torch.Tensor,
    offsets: torch.Tensor,
) -> None:
    """As they are, or each head rounded with a scale of its own."""
    if scales is not None:
        factors = key_value.float().abs().amax(dim=-1) / LARGEST[pages.dtype]
        key_value = quantised(key_value.float(), factors[..., None], pages.dtype)
        store_key_value(factors, scales, page_ids, offsets)
    store_key_value(key_value, pages, page_ids, offsets)


def expected(case: Case, prepared: Prepared, layer_id: int) -> torch.Tensor:
    layout, shape = prepared.layout, case.shape
    owner = storing_layer(case.shapes, layer_id)
    type_layout = next(kind for kind in prepared.type_layouts if owner in kind.layer_type.layer_ids)
    pages = type_layout.layer_pages(prepared.pool, owner)
    scales = type_layout.layer_scales(prepared.pool, owner)
    table = torch.from_numpy(layout.page_tables[type_layout.layer_type.name])
    sequence_of = np.repeat(np.arange(len(layout.starts)), layout.lengths)
    page_ids = table[sequence_of, layout.positions // case.page_tokens]
    store(prepared.key_value, pages, scales, page_ids, torch.from_numpy(layout.positions % case.page_tokens))
    query_starts = torch.from_numpy(np.concatenate(([0], np.cumsum(layout.lengths))))
    ends = torch.from_numpy(layout.starts + layout.lengths)
    sinks = None if shape.sinks is None else torch.tensor(shape.sinks)
    window, chunk = case.shapes[layer_id].window, case.shapes[layer_id].chunk
    options = AttentionOptions(shape.scale, window, shape.softcap, sinks=sinks, chunk=chunk)
    factors = None if scales is None else PageScales(scales[:, 0], scales[:, -1])
    return paged_attention(prepared.query, pages, table, ends, query_starts, options, factors, shape.output_dim)


def with_larger_heads(case: Case) -> Case:
    """The same with heads of four times as many channels."""
    shape, value_dim = case.shape, case.shape.value_dim
    value_dim = None if value_dim is None else 4 * value_dim
    return replace(case, shape=replace(shape, head_dim=4 * shape.head_dim, value_dim=value_dim))


def attend_layer(
    case: Case, step: AttentionStep, layer_id: int, query: torch.Tensor, key_value: torch.Tensor
) -> torch.Tensor:
    """As attend; a layer that stores nothing gets queries alone."""
    return attend(step, layer_id, query, key_value if case.shapes[layer_id].shares_with is None else key_value[:, :0])


def attend(step: AttentionStep, layer_id: int, query: torch.Tensor, key_value: torch.Tensor) -> torch.Tensor:
    """The step's attention without norm and rotation."""
    return step.attend(layer_id, torch.cat((query, key_value.flatten(1, 2)), dim=1), None, None)
