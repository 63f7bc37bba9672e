"""Layer types, small and large pages, and the pool that is laid out for them."""

import pytest

from engine.memory.planning.grouping import group_layers, large_page_bytes
from engine.memory.planning.planner import plan_layers, plan_pool, pool_bytes_for
from engine.memory.spec import LayerSpec

MIB = 2**20
#: Gemma-3-27B: 10 layers of full attention and 52 of window attention, 16 KV heads of 128 in bfloat16.
GEMMA_3_27B = [LayerSpec("full", 2 * 16 * 128 * 2, "bfloat16")] * 10 + [
    LayerSpec("full", 2 * 16 * 128 * 2, "bfloat16", model="stands for windows")
] * 52


def test_layers_that_store_the_same_form_one_type() -> None:
    spec = LayerSpec("full", 512, "bfloat16")
    (layer_type,) = group_layers([spec] * 6, page_tokens=16)
    assert layer_type.name == "main.full"
    assert layer_type.layer_ids == (0, 1, 2, 3, 4, 5)
    assert layer_type.small_page_bytes == 6 * 16 * 512


def test_types_are_told_apart_by_size_dtype_and_model_and_have_different_names() -> None:
    specs = [
        LayerSpec("full", 512, "bfloat16"),
        LayerSpec("full", 256, "bfloat16"),
        LayerSpec("full", 512, "float32"),
        LayerSpec("full", 512, "bfloat16", model="draft"),
        LayerSpec("full", 512, "bfloat16"),
    ]
    types = group_layers(specs, page_tokens=16)
    assert [layer_type.layer_ids for layer_type in types] == [(0, 4), (1,), (2,), (3,)]
    assert len({layer_type.name for layer_type in types}) == 4


def test_the_pages_of_gemma_3_27b_have_the_published_sizes() -> None:
    types = group_layers(GEMMA_3_27B, page_tokens=16)
    assert [layer_type.small_page_bytes / MIB for layer_type in types] == [1.25, 6.5]
    assert large_page_bytes(types) / MIB == 32.5


def test_a_pool_is_laid_out_in_the_design_that_wastes_least_and_keeps_to_its_size() -> None:
    plan = plan_pool(GEMMA_3_27B, page_tokens=16, pool_bytes=1024 * MIB)
    assert len(plan.types) == 31
    assert [plan.ratio(layer_type) for layer_type in plan.types] == [1] * 31
    assert sorted(i for layer_type in plan.types for i in layer_type.layer_ids) == list(range(62))
    assert 1024 * MIB - plan.large_page_bytes < plan.pool_bytes <= 1024 * MIB


def test_the_tables_of_a_sequence_are_bounded() -> None:
    report = plan_layers(GEMMA_3_27B, page_tokens=16, max_page_tables=8)
    assert report.chosen.num_page_tables <= 8
    assert "at most 8 page tables" in report.reason


def test_a_pool_without_room_for_a_request_is_refused() -> None:
    spec = LayerSpec("full", 512, "bfloat16")
    page_bytes = large_page_bytes(group_layers([spec], page_tokens=16))
    with pytest.raises(ValueError, match=f"needs at least {2 * page_bytes} bytes"):
        plan_pool([spec], page_tokens=16, pool_bytes=2 * page_bytes - 1)


def test_the_stated_bytes_are_enough_for_the_stated_sequences() -> None:
    types = group_layers(GEMMA_3_27B, page_tokens=16)
    # 7 sequences of 100 tokens: 49 small pages of each type, 2 large pages for one and 10 for the other.
    assert pool_bytes_for(types, num_tokens=100, num_sequences=7) == (1 + 2 + 10) * large_page_bytes(types)
