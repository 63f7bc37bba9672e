"""The numbers of the papers and of our own design that must come out exactly; see docs/memory.md for their sources."""

from dataclasses import replace

import pytest

from engine.memory.planning.designs import gcd_design, lcm_design, max_page_design, uniform_waste
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import plan_layers
from engine.memory.spec import LayerSpec
from engine.models.stored_layers import layers_from_config

KIB, MIB = 2**10, 2**20


def layers_of(name: str) -> tuple[LayerSpec, ...]:
    return layers_from_config(CONFIGS[name]).layers


def test_one_page_size_wastes_four_fifths_on_llama_vision() -> None:
    assert uniform_waste(layers_of("llama-3.2-11b-vision"), 43, 6193) == pytest.approx(
        1 - (32 * 43 + 8 * 6193) / (40 * (43 + 6193)), abs=1e-12
    )
    assert uniform_waste(layers_of("llama-3.2-11b-vision"), 43, 6193) == pytest.approx(0.79586, abs=5e-6)


def test_one_page_size_wastes_a_quarter_on_gemma_2_and_more_than_half_on_ministral() -> None:
    assert uniform_waste(layers_of("gemma-2-27b"), 8192) == 0.25
    assert uniform_waste(layers_of("gemma-2-9b"), 8192) == 0.25
    assert uniform_waste(layers_of("ministral-8b"), 131_072) == 0.5625


def test_jamba_has_84_attention_pages_in_a_large_page_and_max_pages_of_1344_tokens() -> None:
    """The paper's states are both in bfloat16; Agon keeps the ssm state in float32."""
    layers = [
        replace(spec, bytes_per_token=spec.bytes_per_token // 2, dtype="bfloat16") if spec.part == "ssm" else spec
        for spec in layers_of("jamba-1.5-mini")
    ]
    design = lcm_design(layers, page_tokens=16)
    ratios = {kind.spec.part or kind.spec.kind: design.ratio(kind) for kind in design.types}
    assert ratios == {"full": 84, "conv": 16, "ssm": 3}
    assert design.large_page_bytes == 21 * MIB
    attention = next(kind for kind in max_page_design(layers, page_tokens=16).types if kind.spec.kind == "full")
    assert attention.page_tokens == 1344


def test_gemma_3_27b_has_small_pages_of_one_and_a_quarter_and_six_and_a_half_mib() -> None:
    design = lcm_design(layers_of("gemma-3-27b"), page_tokens=16)
    sizes = {kind.spec.kind: (kind.small_page_bytes, design.ratio(kind)) for kind in design.types}
    assert sizes == {"full": (1.25 * MIB, 26), "window": (6.5 * MIB, 5)}
    assert design.large_page_bytes == 32.5 * MIB


@pytest.mark.parametrize(
    ("tokens", "lcm", "gcd", "equal_page"),
    [(100, 101, 25, 42), (500, 21, 5, 19), (2_000, 2.2, 1.1, 12.5), (32_000, 0.3, 0.2, 2.5)],
)
def test_the_table_of_gemma_3_27b(tokens: int, lcm: float, gcd: float, equal_page: float) -> None:
    report = plan_layers(layers_of("gemma-3-27b"), page_tokens=16)
    digits = 0 if tokens < 1000 else 1
    found = [round(100 * report.waste(name, tokens), digits) for name in ("lcm", "gcd", "equal_page")]
    assert found == pytest.approx([lcm, gcd, equal_page])


def test_the_gcd_split_of_gemma_3_27b_has_pages_of_two_layers_and_31_tables() -> None:
    design = gcd_design(layers_of("gemma-3-27b"), page_tokens=16)
    assert design.num_page_tables == 31
    assert {len(kind.layer_ids) for kind in design.types} == {2}
    assert all(design.ratio(kind) == 1 for kind in design.types)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("page_tokens", [16, 32])
def test_the_planner_is_never_worse_than_the_best_of_lcm_gcd_and_equal_pages(name: str, page_tokens: int) -> None:
    model = layers_from_config(CONFIGS[name])
    report = plan_layers(model.layers, page_tokens=page_tokens, image_tokens=model.image_tokens)
    for tokens in report.lengths:
        best = min(report.held(rival, tokens) for rival in ("lcm", "gcd", "equal_page"))
        assert report.live(tokens) <= report.held("chosen", tokens) <= best


@pytest.mark.parametrize(
    ("name", "pages", "large"),
    [
        ("llama-3.2-11b-vision", {"full": (32, 2048 * KIB, 1), "cross": (8, 512 * KIB, 4)}, 2048 * KIB),
        ("gemma-2-9b", {"full": (21, 2688 * KIB, 1), "window": (21, 2688 * KIB, 1)}, 2688 * KIB),
        ("gemma-2-27b", {"full": (23, 2944 * KIB, 1), "window": (23, 2944 * KIB, 1)}, 2944 * KIB),
        ("gemma-3-12b", {"full": (8, 1024 * KIB, 5), "window": (40, 5120 * KIB, 1)}, 5120 * KIB),
        ("ministral-8b", {"full": (9, 576 * KIB, 3), "window": (27, 1728 * KIB, 1)}, 1728 * KIB),
        ("llama-4-scout", {"full": (12, 768 * KIB, 3), "chunked": (36, 2304 * KIB, 1)}, 2304 * KIB),
    ],
)
def test_small_and_large_pages_of_the_layer_tables(
    name: str, pages: dict[str, tuple[int, int, int]], large: int
) -> None:
    design = lcm_design(layers_of(name), page_tokens=16)
    assert design.large_page_bytes == large
    found = {kind.spec.kind: (len(kind.layer_ids), kind.small_page_bytes, design.ratio(kind)) for kind in design.types}
    assert found == pages


def test_a_draft_model_in_the_same_pool_makes_large_pages_of_37_mib() -> None:
    design = lcm_design(layers_of("gemma-2-27b-with-2b-draft"), page_tokens=16)
    assert design.large_page_bytes == pytest.approx(37.4 * MIB, rel=1e-3)
    assert {kind.spec.model: design.ratio(kind) for kind in design.types} == {"main": 13, "draft": 46}
