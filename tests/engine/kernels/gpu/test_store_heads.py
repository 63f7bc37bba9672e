"""Heads that are normed, turned and stored, against the reference; a pool that is NaN wherever nothing is written."""

from dataclasses import dataclass

import pytest
import torch

from engine.kernels import gpu, reference
from engine.kernels.step_kernels import PageScales, StepKernels
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near

PAGE_TOKENS, NUM_PAGES = 4, 6
SLOTS = (22, -1, 0, 9, -1, 17)


@dataclass(frozen=True)
class Heads:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_rotated: int
    has_norms: bool
    norms_values: bool = False
    num_parts: int = 2  #: 1: keys alone


CASES = {
    "all channels turn": Heads(4, 2, 16, 16, False),
    "all turn, with norms, groups of three": Heads(6, 2, 32, 32, True),
    "a quarter turns": Heads(3, 3, 64, 16, False),
    "half of them turn, with norms, no power of two": Heads(4, 1, 24, 12, True),
    "none turns": Heads(2, 2, 8, 0, False),
    "a quarter turns, values are normed too": Heads(4, 1, 32, 8, True, norms_values=True),
    "heads of 96": Heads(20, 4, 96, 96, False),
    "keys alone": Heads(5, 1, 24, 8, False, num_parts=1),
    "keys alone, as large as latents": Heads(3, 1, 576, 64, False, num_parts=1),
}


def _layer(heads: Heads, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """A poisoned pool, and the pages of the second of its three layers; pages have padding between them."""
    layer_elements = heads.num_parts * heads.num_kv_heads * PAGE_TOKENS * heads.head_dim
    page_elements = 3 * layer_elements + 16
    poison = -128 if dtype == torch.int8 else float("nan")
    pool = torch.full((NUM_PAGES * page_elements,), poison).to(dtype).to(device)
    strides = (page_elements, layer_elements // heads.num_parts, PAGE_TOKENS * heads.head_dim, heads.head_dim, 1)
    shape = (NUM_PAGES, heads.num_parts, heads.num_kv_heads, PAGE_TOKENS, heads.head_dim)
    return pool, pool.as_strided(shape, strides, layer_elements)


def _run(
    kernels: StepKernels,
    heads: Heads,
    dtype: torch.dtype,
    page_dtype: torch.dtype,
    device: torch.device,
    scales: PageScales | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs store_heads; returns queries, the pool, and the layer's pages."""
    generator = torch.Generator().manual_seed(heads.head_dim)
    num_tokens, all_heads = len(SLOTS), heads.num_heads + heads.num_parts * heads.num_kv_heads
    rows = torch.randn(num_tokens, (all_heads + 1) * heads.head_dim, generator=generator).to(dtype).to(device)
    qkv = rows[:, heads.head_dim :].view(num_tokens, all_heads, heads.head_dim)  # rows are strided
    norms: list[torch.Tensor | None] = [None, None]
    if heads.has_norms:
        norms = [torch.rand(heads.head_dim, generator=generator).add(0.5).to(device) for _ in range(2)]
    angles = torch.rand(num_tokens, heads.num_rotated // 2, generator=generator) * 6
    cos, sin = (angles.cos().to(device), angles.sin().to(device)) if heads.num_rotated else (None, None)
    pool, pages = _layer(heads, page_dtype, device)
    places = torch.tensor(SLOTS, device=device)
    norms_values = heads.norms_values
    kernels.store_heads(qkv, cos, sin, norms[0], norms[1], 1e-5, pages, places, scales, norms_values=norms_values)
    return qkv[:, : heads.num_heads], pool, pages


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_queries_and_pool_are_those_of_the_reference_and_the_rest_of_the_pool_is_untouched(
    case: str, dtype: torch.dtype, device: torch.device
) -> None:
    queries, pool, _ = _run(gpu, CASES[case], dtype, dtype, device)
    expected_queries, expected_pool, _ = _run(reference, CASES[case], dtype, dtype, device)
    assert_near(queries, expected_queries)
    assert_near(pool, expected_pool)


@pytest.mark.parametrize("num_rotated", [0, 8, 32])
@pytest.mark.parametrize("has_norm", [True, False])
def test_query_heads_alone_need_no_pages(num_rotated: int, has_norm: bool, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(num_rotated)
    queries = torch.randn(len(SLOTS), 3, 32, generator=generator).to(device)
    norm = torch.rand(32, generator=generator).to(device) if has_norm else None
    angles = torch.rand(len(SLOTS), num_rotated // 2, generator=generator) * 6
    cos, sin = (angles.cos().to(device), angles.sin().to(device)) if num_rotated else (None, None)
    results = []
    for kernels in (gpu, reference):
        results.append(queries.clone())
        kernels.store_heads(results[-1], cos, sin, norm, None, 1e-5, None, torch.tensor(SLOTS, device=device))
    assert_near(results[0], results[1])


def _scales(heads: Heads, device: torch.device) -> PageScales:
    key, value = torch.full((2, heads.num_kv_heads, NUM_PAGES, PAGE_TOKENS), float("nan"), device=device)
    return PageScales(key.transpose(0, 1), value.transpose(0, 1))


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize(
    "page_dtype",
    # Triton's interpreter rounds to float8 wrongly: it loses the carry.
    [torch.int8, pytest.param(torch.float8_e4m3fn, marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("case", ["a quarter turns", "all turn, with norms, groups of three", "keys alone"])
def test_quantised_pages_and_their_scales_are_those_of_the_reference(
    case: str, page_dtype: torch.dtype, device: torch.device
) -> None:
    heads = CASES[case]
    ours, theirs = (_scales(heads, device) for _ in range(2))
    _, pool, _ = _run(gpu, heads, torch.float32, page_dtype, device, ours)
    _, expected, pages = _run(reference, heads, torch.float32, page_dtype, device, theirs)
    assert_near(ours.key, theirs.key)
    assert_near(ours.value, theirs.value)
    # A scaled number near a half may round either way, because it may differ in the last place.
    codes, expected_codes = (bits.view(torch.int8).int() for bits in (pool, expected))
    assert (codes - expected_codes).abs().max() <= 1
    assert (codes != expected_codes).sum() <= 2
    assert pages.shape[0] == NUM_PAGES


def test_a_step_without_tokens_is_no_launch(device: torch.device) -> None:
    heads = CASES["none turns"]
    pool, pages = _layer(heads, torch.float32, device)
    qkv = torch.empty(0, 6, 8, device=device)
    gpu.store_heads(qkv, None, None, None, None, 0.0, pages, torch.empty(0, dtype=torch.int64, device=device))
    assert pool.isnan().all()
