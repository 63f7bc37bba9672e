"""Types in lockstep: one pool records the pages of all of them, and each has its own page table."""

from collections.abc import Sequence

import pytest

from engine.memory.kv_cache import KVCache
from engine.memory.ledger import picture, take_ledger
from engine.memory.planning.designs import Design, equal_page_design, gcd_design, lcm_design
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import choose_design
from engine.memory.spec import LayerSpec, PoolPlan
from engine.models.stored_layers import layers_from_config
from tests.engine.memory.pool_driver import MakeDesign, extended

FULL = [LayerSpec("full", 4, "bf16")] * 2
WINDOWS = [LayerSpec("window", 4, "bf16", span=8)] * 6


def plan_of(design: Design, num_pages: int) -> PoolPlan:
    return PoolPlan(design.types, design.large_page_bytes, num_pages + 1)


def cache_of(num_pages: int, make: MakeDesign = gcd_design) -> KVCache:
    return KVCache(plan_of(make([*FULL, *WINDOWS], page_tokens=4), num_pages), max_step_tokens=8)


def serve(cache: KVCache, sequence: int, tokens: Sequence[int]) -> int:
    cache.open(sequence, sequence)
    hit = cache.admit(sequence, tokens, len(tokens) - 1, [len(tokens)])
    assert hit is not None
    assert cache.extend(sequence, hit, len(tokens)) is not None
    cache.advance(sequence, tokens, len(tokens))
    return hit


@pytest.mark.parametrize(
    ("model", "num_groups", "num_tables"),
    [
        ("gemma-3-27b", 2, 31),
        ("gemma-3-12b", 2, 6),
        ("jamba-1.5-mini", 2, 32),
        ("gemma-2-27b-with-2b-draft", 4, 72),
        ("llama-3.1-8b", 1, 1),
    ],
)
def test_a_model_has_as_many_groups_as_kinds_of_pages(model: str, num_groups: int, num_tables: int) -> None:
    design = choose_design(layers_from_config(CONFIGS[model]).layers, page_tokens=16)
    groups = plan_of(design, 10).lockstep_groups()
    assert len(groups) == num_groups
    assert sorted(which for group in groups for which in group) == list(range(num_tables))


def test_types_with_other_windows_other_page_sizes_or_other_tokens_per_page_are_not_in_lockstep() -> None:
    layers = [
        LayerSpec("window", 8, "bf16", span=8),
        LayerSpec("window", 8, "bf16", span=9),
        LayerSpec("full", 8, "bf16"),
        LayerSpec("full", 16, "bf16"),
        LayerSpec("full", 8, "float16"),
    ]
    assert plan_of(lcm_design(layers, page_tokens=4), 9).lockstep_groups() == ((0,), (1,), (2, 4), (3,))
    recurrent = [LayerSpec("recurrent", 32, "bf16", span=span) for span in (8, 16)]
    assert plan_of(lcm_design(recurrent, page_tokens=4), 9).lockstep_groups() == ((0,), (1,))


def test_every_type_has_pages_of_its_own() -> None:
    cache = cache_of(40)
    serve(cache, 1, [1] * 6)
    serve(cache, 2, [2] * 6)
    tables = [table for sequence in (1, 2) for table in cache.page_table(sequence)]
    assert [len(table) for table in tables] == [2] * 8
    pages = [page for table in tables for page in table]
    assert len(set(pages)) == len(pages), "small pages are large pages here, so that no two types may have the same"
    cache.check_integrity()


def test_changes_and_copies_are_told_for_each_type() -> None:
    cache = cache_of(40)
    serve(cache, 1, [1] * 6)
    cache.open(2, 1)
    cache.fork(1, 2)
    before = cache.page_table(1)
    extension = extended(cache, 2, 6, 9)
    after = cache.page_table(2)
    assert sorted((copy.layer_type, copy.src, copy.dst) for copy in extension.copies) == [
        (which, before[which][1], after[which][1]) for which in range(4)
    ]
    told = [list(table) for table in before]
    for change in extension.changes:
        told[change.layer_type][change.start : change.start + len(change.pages)] = change.pages
    assert [tuple(table) for table in told] == after
    assert cache.counters.num_copies == 4


def test_a_hit_gives_the_same_pages_in_every_table() -> None:
    cache = cache_of(60)
    serve(cache, 1, [1] * 12)
    tables = cache.page_table(1)
    cache.close(1)
    assert serve(cache, 2, [1] * 12) == 8
    assert [table[:2] for table in cache.page_table(2)] == [table[:2] for table in tables]
    cache.check_integrity()


def test_what_is_evicted_for_one_type_leaves_the_others_of_its_group_too() -> None:
    """A prefix is of use only where all types have it, so no hit is lost."""
    cache = cache_of(8)
    serve(cache, 1, [1] * 8)
    cache.close(1)
    assert cache.large_pool.num_evictable == 8
    cache.begin_step(1)
    serve(cache, 2, [2] * 3)
    assert [pool.num_evictable for pool in cache.pools] == [1, 1]
    cache.check_integrity()


def test_the_ledger_and_the_picture_show_every_type() -> None:
    cache = cache_of(16)
    serve(cache, 1, [1] * 6)
    ledger = take_ledger(cache)
    assert [entry.num_used for entry in ledger.types] == [2] * 4
    assert ledger.used_bytes == 8 * cache.plan.large_page_bytes
    assert ledger.tail_waste_bytes == ledger.used_bytes // 4
    cells = picture(cache)
    assert sorted(cell.layer_type for cell in cells if cell.layer_type) == sorted(
        kind.name for kind in cache.plan.types for _ in range(2)
    )


def test_room_is_counted_for_all_types_of_a_group() -> None:
    cache = cache_of(8)
    assert cache.rule.fits_ever([8])
    assert not cache.rule.fits_ever([9])
    assert cache.rule.needs([9]) == (3, 3)
    assert cache.rule.large_pages((3, 3)) == 12


@pytest.mark.parametrize("make", [lcm_design, gcd_design, equal_page_design])
def test_whatever_the_cut_the_same_prefixes_are_found(make: MakeDesign) -> None:
    cache = cache_of(60, make)
    article = list(range(24))
    hits = []
    for index in range(4):
        hits.append(serve(cache, index, article + [index] * 6))
        cache.close(index)
        cache.check_integrity()
    assert hits == [0, 24, 24, 24]
