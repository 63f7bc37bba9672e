"""The torch backend against the plain reference."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.layout import layer_specs, type_layouts
from engine.attention.torch_backend import _MAX_CAPPED_SCORES, TorchBackend
from engine.memory.planning.planner import plan_pool
from engine.memory.spec import NULL_PAGE, LayerSpec
from tests.engine.attention.cases import NOWHERE, TOLERANCE, Case, attend, attend_layer, cases, expected, prepare


@settings(max_examples=120, deadline=None)
@given(cases())
def test_it_equals_the_reference_and_never_reads_stale_bytes(case: Case) -> None:
    ours, reference = prepare(case, float("nan"), NOWHERE), prepare(case, 0.0, NULL_PAGE)
    backend = TorchBackend(case.plan, ours.pool, case.shapes, case.dtype)
    step = backend.begin(ours.layout)
    for layer_id in range(len(case.windows)):
        result = attend_layer(case, step, layer_id, ours.query, ours.key_value)
        wanted = expected(case, reference, layer_id).flatten(1)
        torch.testing.assert_close(result, wanted, atol=TOLERANCE[case.dtype], rtol=TOLERANCE[case.dtype])


def test_a_step_writes_only_the_places_of_its_own_tokens() -> None:
    case = Case(AttentionShape(4, 2, 16), 4, [6, 0], [1, 3], seed=1, dtype=torch.float32)
    prepared = prepare(case, 7.0, NOWHERE)
    before = prepared.pool.clone()
    step = TorchBackend(case.plan, prepared.pool, case.shapes, case.dtype).begin(prepared.layout)
    attend(step, 1, prepared.query, prepared.key_value)
    (type_layout,) = prepared.type_layouts
    layer_0 = type_layout.layer_pages(prepared.pool, 0)
    table = prepared.layout.page_tables[type_layout.layer_type.name]
    begun = int(table[1, 0])  # the new page of the second sequence is cleared for all layers
    untouched = [page for page in range(type_layout.num_pages) if page != begun]
    old = type_layout.layer_pages(before, 0)
    assert torch.equal(layer_0[untouched], old[untouched])
    assert torch.equal(layer_0[begun], torch.zeros_like(layer_0[begun]))


def workspace_bytes(case: Case) -> int:
    prepared = prepare(case, 0.0, NOWHERE)
    backend = TorchBackend(case.plan, prepared.pool, case.shapes, case.dtype)
    attend(backend.begin(prepared.layout), 0, prepared.query, prepared.key_value)
    return backend._workspace.num_bytes


def test_a_long_context_beside_short_ones_does_not_pad_them_all() -> None:
    case = Case(AttentionShape(2, 1, 4), 4, [4000] + [10] * 15, [1] * 16, seed=2, dtype=torch.float32)
    assert workspace_bytes(case) < 3 * 4001 * 2 * 4 * 4


@pytest.mark.parametrize("num_queries", [1, 5, 60])
def test_a_window_gathers_its_own_pages_and_no_others(num_queries: int) -> None:
    shape = AttentionShape(2, 1, 4)
    case = Case(shape, 4, [4000] * 2, [num_queries] * 2, seed=2, dtype=torch.float32, windows=(30,))
    straddled = 30 - 1 + num_queries + 2 * (4 - 1)
    assert workspace_bytes(case) <= 2 * straddled * 2 * 4 * 4


def test_scores_with_a_soft_cap_are_computed_a_few_queries_at_a_time() -> None:
    shape = AttentionShape(8, 2, 4, softcap=2.0)
    case = Case(shape, 16, [1000], [1400], seed=3, dtype=torch.float32, windows=(None,))
    assert case.shape.num_heads * 1400 * 2400 > _MAX_CAPPED_SCORES
    prepared, reference = prepare(case, float("nan"), NOWHERE), prepare(case, 0.0, NULL_PAGE)
    step = TorchBackend(case.plan, prepared.pool, case.shapes, case.dtype).begin(prepared.layout)
    result = attend(step, 0, prepared.query, prepared.key_value)
    torch.testing.assert_close(result, expected(case, reference, 0).flatten(1), atol=1e-5, rtol=1e-5)


def test_offsets_beyond_two_gigabytes_of_elements_do_not_wrap() -> None:
    shape = AttentionShape(1, 1, 64)
    spec = LayerSpec("full", 2 * 64 * 2, "bfloat16")
    plan = plan_pool([spec], page_tokens=16, pool_bytes=6 << 30)
    pool = torch.empty(plan.pool_bytes, dtype=torch.uint8)  # never touched but in one page
    last = plan.num_large_pages - 1
    layout = StepLayout(np.array([0]), np.array([3]), {plan.types[0].name: np.array([[last]])})
    backend = TorchBackend(plan, pool, (shape,), torch.bfloat16)
    key_value = torch.ones(3, 2, 1, 64, dtype=torch.bfloat16)
    attend(backend.begin(layout), 0, key_value[:, 0], key_value)
    assert pool.view(torch.bfloat16)[last * 16 * 128 : last * 16 * 128 + 3 * 64].eq(1).all()


def test_layers_of_one_type_must_have_one_shape() -> None:
    spec = LayerSpec("full", 2 * 64 * 4, "float32")
    plan = plan_pool([spec, spec], page_tokens=4, pool_bytes=1 << 20)
    with pytest.raises(ValueError, match="differ in shape"):
        type_layouts(plan, (AttentionShape(4, 4, 16), AttentionShape(4, 2, 32)))


def test_a_layer_shares_the_pages_of_one_with_equal_heads_only() -> None:
    own, other = AttentionShape(4, 2, 16), AttentionShape(4, 2, 32, shares_with=0)
    plan = plan_pool(layer_specs((own, other), torch.float32, 64), page_tokens=4, pool_bytes=1 << 20)
    assert [kind.layer_ids for kind in plan.types] == [(0,)]
    with pytest.raises(ValueError, match="attention layer 1 differs in shape from the layer that it shares with"):
        type_layouts(plan, (own, other))


def test_layers_of_different_heads_are_of_different_types_though_they_store_equally_many_bytes() -> None:
    shapes = (AttentionShape(4, 4, 16), AttentionShape(4, 2, 32), AttentionShape(4, 4, 32, value_dim=16))
    plan = plan_pool(layer_specs(shapes, torch.float32, 64), page_tokens=4, pool_bytes=1 << 20)
    assert [layout.shape for layout in type_layouts(plan, shapes)] == list(shapes)
    assert len({kind.spec.bytes_per_token for kind in plan.types}) == 1


def test_attention_of_other_kinds_is_refused() -> None:
    plan = plan_pool([LayerSpec("budgeted", 2 * 64 * 4, "float32", span=8)], page_tokens=4, pool_bytes=1 << 20)
    with pytest.raises(ValueError, match="kind budgeted cannot be computed"):
        type_layouts(plan, (AttentionShape(4, 4, 16),))
