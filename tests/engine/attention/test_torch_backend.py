"""The torch backend against the plain reference, for any mixture of chunks, prefixes, page sizes and head groups."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.layout import TypeLayout, type_layouts
from engine.attention.torch_backend import TorchBackend
from engine.kernels.reference import paged_attention, store_key_value
from engine.memory.planner import plan_pool
from engine.memory.spec import LayerSpec, PoolPlan

NUM_LAYERS = 2
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Case:
    """A step: how many tokens of each sequence are already there, and how many come now."""

    shape: AttentionShape
    page_tokens: int
    starts: list[int]
    lengths: list[int]
    seed: int
    dtype: torch.dtype

    @property
    def plan(self) -> PoolPlan:
        token_bytes = 2 * self.shape.num_kv_heads * self.shape.head_dim * self.dtype.itemsize
        spec = LayerSpec("full", token_bytes, str(self.dtype))
        num_pages = sum(-(-(s + n) // self.page_tokens) for s, n in zip(self.starts, self.lengths, strict=True)) + 2
        pool_bytes = num_pages * NUM_LAYERS * self.page_tokens * token_bytes
        return plan_pool([spec] * NUM_LAYERS, page_tokens=self.page_tokens, pool_bytes=pool_bytes)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_kv_heads = draw(st.integers(1, 3))
    shape = AttentionShape(num_kv_heads * draw(st.integers(1, 4)), num_kv_heads, draw(st.sampled_from([4, 16])))
    sequences = draw(
        st.lists(
            st.tuples(st.sampled_from([0, 0, 1, 5, 16, 33, 300]), st.sampled_from([1, 1, 1, 2, 7, 9, 40])),
            min_size=1,
            max_size=6,
        )
    )
    starts, lengths = map(list, zip(*sequences, strict=True))
    page_tokens = draw(st.sampled_from([1, 4, 7, 16]))
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16]))
    return Case(shape, page_tokens, starts, lengths, draw(st.integers(0, 2**20)), dtype)


@dataclass
class Prepared:
    pool: torch.Tensor
    layout: StepLayout
    type_layout: TypeLayout
    query: torch.Tensor
    key_value: torch.Tensor


def prepare(case: Case, poison: float) -> Prepared:
    """A pool full of poison, but for the tokens before the step, which are written through the reference."""
    generator = torch.Generator().manual_seed(case.seed)
    shape, plan = case.shape, case.plan
    pool = torch.full((plan.pool_bytes // case.dtype.itemsize,), poison, dtype=case.dtype).view(torch.uint8)
    (type_layout,) = type_layouts(plan, (shape,) * NUM_LAYERS)
    starts, lengths = np.array(case.starts), np.array(case.lengths)
    num_pages = -(-(starts + lengths) // case.page_tokens)
    order = torch.randperm(int(num_pages.sum()), generator=generator).numpy() + 1
    # Padding of the table is a page that does not exist: nothing may follow it.
    table = np.full((len(starts), num_pages.max()), 2**40)
    for row, pages in enumerate(np.split(order, np.cumsum(num_pages)[:-1])):
        table[row, : len(pages)] = pages
    for layer_id in range(NUM_LAYERS):
        pages = type_layout.layer_pages(pool, case.dtype, layer_id)
        for row, start in enumerate(case.starts):
            positions = np.arange(start)
            past = torch.randn(start, 2, shape.num_kv_heads, shape.head_dim, generator=generator).to(case.dtype)
            page_ids = torch.from_numpy(table[row, positions // case.page_tokens])
            if start:
                # What an engine guarantees: the page of the last token has no poison behind it.
                pages[page_ids[-1]] = 0
            store_key_value(past, pages, page_ids, torch.from_numpy(positions % case.page_tokens))
    num_tokens = int(lengths.sum())
    query = torch.randn(num_tokens, shape.num_heads, shape.head_dim, generator=generator).to(case.dtype)
    key_value = torch.randn(num_tokens, 2, shape.num_kv_heads, shape.head_dim, generator=generator).to(case.dtype)
    layout = StepLayout(starts, lengths, {plan.types[0].name: table})
    return Prepared(pool, layout, type_layout, query, key_value)


def expected(case: Case, prepared: Prepared, layer_id: int) -> torch.Tensor:
    layout = prepared.layout
    pages = prepared.type_layout.layer_pages(prepared.pool, case.dtype, layer_id)
    table = torch.from_numpy(layout.page_tables[prepared.type_layout.layer_type.name])
    sequence_of = np.repeat(np.arange(len(layout.starts)), layout.lengths)
    page_ids = table[sequence_of, layout.positions // case.page_tokens]
    store_key_value(prepared.key_value, pages, page_ids, torch.from_numpy(layout.positions % case.page_tokens))
    query_starts = torch.from_numpy(np.concatenate(([0], np.cumsum(layout.lengths))))
    ends = torch.from_numpy(layout.starts + layout.lengths)
    return paged_attention(prepared.query, pages, table, ends, query_starts, case.shape.scale)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_it_equals_the_reference_and_never_reads_stale_bytes(case: Case) -> None:
    ours, reference = prepare(case, float("nan")), prepare(case, 0.0)
    backend = TorchBackend(case.plan, ours.pool, (case.shape,) * NUM_LAYERS, case.dtype)
    step = backend.begin(ours.layout)
    for layer_id in range(NUM_LAYERS):
        result = step.attend(layer_id, ours.query, ours.key_value)
        wanted = expected(case, reference, layer_id).flatten(1)
        torch.testing.assert_close(result, wanted, atol=TOLERANCE[case.dtype], rtol=TOLERANCE[case.dtype])


def test_a_step_writes_only_the_places_of_its_own_tokens() -> None:
    case = Case(AttentionShape(4, 2, 16), 4, [6, 0], [1, 3], seed=1, dtype=torch.float32)
    prepared = prepare(case, 7.0)
    before = prepared.pool.clone()
    step = TorchBackend(case.plan, prepared.pool, (case.shape,) * NUM_LAYERS, case.dtype).begin(prepared.layout)
    step.attend(1, prepared.query, prepared.key_value)
    layer_0 = prepared.type_layout.layer_pages(prepared.pool, case.dtype, 0)
    table = prepared.layout.page_tables[prepared.type_layout.layer_type.name]
    begun = int(table[1, 0])  # the new page of the second sequence is cleared for all layers
    untouched = [page for page in range(prepared.type_layout.num_pages) if page != begun]
    old = prepared.type_layout.layer_pages(before, case.dtype, 0)
    assert torch.equal(layer_0[untouched], old[untouched])
    assert torch.equal(layer_0[begun], torch.zeros_like(layer_0[begun]))


def test_a_long_context_beside_short_ones_does_not_pad_them_all() -> None:
    case = Case(AttentionShape(2, 1, 4), 4, [4000] + [10] * 15, [1] * 16, seed=2, dtype=torch.float32)
    prepared = prepare(case, 0.0)
    backend = TorchBackend(case.plan, prepared.pool, (case.shape,) * NUM_LAYERS, case.dtype)
    backend.begin(prepared.layout).attend(0, prepared.query, prepared.key_value)
    assert backend.workspace_bytes < 3 * 4001 * 2 * 4 * 4


def test_offsets_beyond_two_gigabytes_of_elements_do_not_wrap() -> None:
    shape = AttentionShape(1, 1, 64)
    spec = LayerSpec("full", 2 * 64 * 2, "bfloat16")
    plan = plan_pool([spec], page_tokens=16, pool_bytes=6 << 30)
    pool = torch.empty(plan.pool_bytes, dtype=torch.uint8)  # never touched but in one page
    last = plan.num_large_pages - 1
    layout = StepLayout(np.array([0]), np.array([3]), {plan.types[0].name: np.array([[last]])})
    backend = TorchBackend(plan, pool, (shape,), torch.bfloat16)
    key_value = torch.ones(3, 2, 1, 64, dtype=torch.bfloat16)
    backend.begin(layout).attend(0, key_value[:, 0], key_value)
    assert pool.view(torch.bfloat16)[last * 16 * 128 : last * 16 * 128 + 3 * 64].eq(1).all()


def test_layers_of_one_type_must_have_one_shape() -> None:
    spec = LayerSpec("full", 2 * 64 * 4, "float32")
    plan = plan_pool([spec, spec], page_tokens=4, pool_bytes=1 << 20)
    with pytest.raises(ValueError, match="differ in shape"):
        type_layouts(plan, (AttentionShape(4, 4, 16), AttentionShape(4, 2, 32)))
