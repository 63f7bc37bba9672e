"""What vLLM's tests of packed pages, Jenga's page ids and mini-sglang's tests of allocation after eviction pin: no byte
belongs to two, whatever the mix of layers and the history of the pool."""

import itertools
import random
from collections.abc import Iterable

import pytest

from engine.memory.kv_cache import KVCache
from engine.memory.ledger import take_ledger
from engine.memory.planning.designs import equal_page_design, gcd_design, lcm_design
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import choose_design
from engine.memory.spec import NULL_PAGE, LayerSpec, PoolPlan
from engine.models.stored_layers import layers_from_config
from tests.engine.memory.pool_driver import MakeDesign

LAYERS = (
    *[LayerSpec("full", 6, "bf16")] * 2,
    *[LayerSpec("window", 4, "bf16", span=9)] * 4,
    LayerSpec("recurrent", 48, "float32", span=8),
)
DESIGNS: tuple[MakeDesign, ...] = (lcm_design, gcd_design, equal_page_design)


def used_bytes(cache: KVCache, sequences: Iterable[int]) -> list[tuple[int, int]]:
    """(start, end) of every small page that one of these sequences has, each page once."""
    spans: set[tuple[int, int]] = set()
    for sequence in sequences:
        for kind, table in zip(cache.plan.types, cache.page_table(sequence), strict=True):
            size = kind.small_page_bytes
            pages = [page for page in table if page != NULL_PAGE]
            assert len(set(pages)) == len(pages), "a page stands twice in one table"
            spans.update((page * size, (page + 1) * size) for page in pages)
    return sorted(spans)


@pytest.mark.parametrize("make", DESIGNS)
def test_no_byte_belongs_to_two_pages_and_every_page_lies_in_one_large_page(make: MakeDesign) -> None:
    design = make(LAYERS, page_tokens=4)
    cache = KVCache(PoolPlan(design.types, design.large_page_bytes, 40), max_step_tokens=8)
    choose, next_id = random.Random(0), 0
    running: dict[int, tuple[list[int], int]] = {}
    for step in range(150):
        cache.begin_step(step)
        if len(running) < 5:
            tokens = [choose.randrange(2) for _ in range(4)] * 10
            cache.open(next_id, next_id)
            hit = cache.admit(next_id, tokens, 39, [8])
            if hit is None:
                cache.close(next_id)
            else:
                running[next_id] = (tokens, hit)
            next_id += 1
        for sequence, (tokens, position) in list(running.items()):
            end = cache.chunk_end(position, min(position + 5, 40))
            if end <= position or cache.extend(sequence, position, end) is None:
                cache.close(sequence)
                cache.end_request(sequence)
                del running[sequence]
                continue
            cache.advance(sequence, tokens, end)
            running[sequence] = tokens, end
        spans = used_bytes(cache, running)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        large = cache.plan.large_page_bytes
        assert all(start // large == (end - 1) // large for start, end in spans)
        assert all(large <= start and end <= cache.plan.pool_bytes for start, end in spans)
        cache.check_integrity()


@pytest.mark.parametrize("model", ["gemma-3-27b", "jamba-1.5-mini", "llama-3.2-11b-vision", "ministral-8b"])
def test_layers_lie_one_after_another_in_a_page_and_fill_it_but_for_the_padding(model: str) -> None:
    layers = layers_from_config(CONFIGS[model]).layers
    for design in (choose_design(layers, page_tokens=16), *(make(layers, page_tokens=16) for make in DESIGNS[:2])):
        for kind in design.types:
            ends = [(index + 1) * kind.layer_page_bytes for index in range(len(kind.layer_ids))]
            assert ends[-1] + kind.padding_bytes == kind.small_page_bytes
            assert design.large_page_bytes % kind.small_page_bytes == 0
        stored = sorted(layer for kind in design.types for layer in kind.layer_ids)
        assert stored == [index for index, spec in enumerate(layers) if spec.shares_with is None]


def test_layers_that_share_keys_and_values_are_in_no_page_of_their_own() -> None:
    layers = layers_from_config(CONFIGS["character"]).layers
    design = lcm_design(layers, page_tokens=16)
    stored = {layer for kind in design.types for layer in kind.layer_ids}
    assert all((layers[index].shares_with is None) == (index in stored) for index in range(len(layers)))
    assert sum(kind.content_bytes for kind in design.types) == 16 * sum(
        layer.bytes_per_token for layer in layers if layer.shares_with is None
    )


def test_pages_that_come_from_eviction_are_whole_and_different() -> None:
    design = lcm_design(LAYERS[:6], page_tokens=4)
    cache = KVCache(PoolPlan(design.types, design.large_page_bytes, 9), max_step_tokens=16)
    for sequence in range(3):  # cached, until the pool is full and beyond
        cache.begin_step(sequence)
        cache.open(sequence, sequence)
        assert cache.admit(sequence, [sequence] * 16, 0, [16]) == 0
        assert cache.extend(sequence, 0, 16) is not None
        cache.advance(sequence, [sequence] * 16, 16)
        cache.close(sequence)
        cache.end_request(sequence)
        cache.check_integrity()
    ledger = take_ledger(cache)
    assert ledger.used_bytes == 0
    assert ledger.evictable_bytes + ledger.empty_in_large_bytes + ledger.empty_bytes == (
        ledger.pool_bytes - ledger.null_bytes
    )
    cache.open(9, 9)
    assert cache.admit(9, [9] * 16, 0, [16]) == 0
    assert cache.extend(9, 0, 16) is not None
    spans = used_bytes(cache, [9])
    assert len(spans) == 8
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    cache.check_integrity()
