"""One pool for several models: small pages divide the common large page, and what that costs."""

import itertools

import pytest

from engine.memory.planning.grouping import group_layers
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import MAX_PAGE_TABLES, choose_design
from engine.memory.planning.together import (
    StoredModel,
    expected_waste,
    fit_beside,
    fit_design,
    plan_together,
    report_lines,
)
from engine.memory.spec import LayerSpec
from engine.models.stored_layers import layers_from_config

NAMES = ("llama-3.1-8b", "gemma-3-12b", "jamba-1.5-mini")


def stored(name: str) -> StoredModel:
    return StoredModel(tuple(layers_from_config(CONFIGS[name]).layers))


@pytest.mark.parametrize("pair", list(itertools.combinations(NAMES, 2)), ids="+".join)
def test_small_pages_of_two_models_divide_one_large_page(pair: tuple[str, ...]) -> None:
    models = {name: stored(name) for name in pair}
    together = plan_together(models)
    for name, design in together.designs.items():
        assert design.large_page_bytes == together.large_page_bytes
        assert design.num_page_tables <= MAX_PAGE_TABLES
        whole = sorted(layer for kind in group_layers(models[name].layers, page_tokens=16) for layer in kind.layer_ids)
        assert sorted(layer for kind in design.types for layer in kind.layer_ids) == whole
        assert all(together.large_page_bytes % kind.small_page_bytes == 0 for kind in design.types)
    assert together.fits_well
    assert len(list(report_lines(together))) == 2


def test_a_model_alone_keeps_its_design() -> None:
    model = stored("gemma-3-12b")
    alone = choose_design(model.layers, page_tokens=16)
    together = plan_together({"only": model})
    assert together.designs == {"only": alone}
    assert together.cost == {"only": 0}
    assert fit_design(model.layers, page_tokens=16, large_page_bytes=alone.large_page_bytes) == alone


def test_pages_of_coprime_sizes_are_padded_instead_of_multiplied() -> None:
    """The least common multiple of these would be 331 MiB."""
    models = {
        "a": StoredModel((LayerSpec("full", 1031, "int8"),) * 3),
        "b": StoredModel((LayerSpec("full", 1277, "int8"),) * 5),
    }
    together = plan_together(models)
    assert together.large_page_bytes <= 64 << 20
    assert max(together.cost.values()) < 0.6


def test_models_that_do_not_fit_say_what_it_costs() -> None:
    models = {
        "small": StoredModel((LayerSpec("full", 8, "bf16"),)),
        "states": StoredModel((LayerSpec("recurrent", 4 << 20, "float32"),)),
    }
    together = plan_together(models)
    assert not together.fits_well
    assert together.waste["small"] == pytest.approx(expected_waste(models["small"].layers, together.designs["small"]))
    assert together.cost["small"] > 0.05


def test_a_large_page_that_holds_no_layer_fits_nobody() -> None:
    assert fit_design([LayerSpec("full", 64, "bf16")], page_tokens=16, large_page_bytes=512) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_model_keeps_its_pages_beside_a_draft_model(name: str) -> None:
    model, draft = stored(name), (LayerSpec("full", 1024, "float32"),) * 4
    found = fit_beside(model.layers, draft, page_tokens=16)
    assert found is not None
    own, other = found
    assert own == choose_design(model.layers, page_tokens=16)
    assert other.large_page_bytes == own.large_page_bytes
    assert sorted(layer for kind in other.types for layer in kind.layer_ids) == [0, 1, 2, 3]


def test_a_draft_model_with_larger_layers_has_large_pages_that_are_multiples() -> None:
    layers, draft = (LayerSpec("full", 64, "float32"),) * 2, (LayerSpec("full", 320, "float32"),)
    found = fit_beside(layers, draft, page_tokens=16)
    assert found is not None
    own, other = found
    alone = choose_design(layers, page_tokens=16)
    assert own.types == alone.types
    assert own.large_page_bytes == other.large_page_bytes == 3 * alone.large_page_bytes


def test_no_cut_is_found_where_a_draft_model_stores_very_much_more() -> None:
    assert (
        fit_beside((LayerSpec("full", 16, "float32"),), (LayerSpec("full", 4096, "float32"),), page_tokens=16) is None
    )
