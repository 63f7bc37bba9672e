"""Tile sizes of paged attention: a measured entry is found by its shape class alone and beats the formula; the formula
gives legal tiles that fit into a device's memory."""

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

import triton

from engine.kernels.gpu import attention_tiles
from engine.kernels.gpu.attention_tiles import (
    AttentionTiles,
    Mode,
    formula_tiles,
    halves_values,
    heads_of_tile,
    most_parts,
    num_programs,
    prompt_parts,
    tiles_for,
)
from engine.kernels.gpu.tuning import TABLES, Key, as_entry, tuned_values

KEY = Key.of_attention("decode", torch.bfloat16, torch.int8, 128, 4, 1)
TILES = AttentionTiles(block_m=16, block_t=32, part_tokens=512, num_warps=4, num_stages=4)

#: Shared memory that a program may have, in KiB, by compute capability (CUDA programming guide).
SHARED_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}

Shape = tuple[Mode, torch.dtype, torch.dtype, int, int, int]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """The shape arguments of tiles_for: mode, dtypes of queries and pages, head_dim, group size, queries."""
    dtype = draw(st.sampled_from([torch.bfloat16, torch.float32]))
    page_dtype = draw(st.sampled_from([dtype, torch.int8]))
    num_queries = draw(st.integers(1, 2000))
    mode: Mode = "decode" if num_queries == 1 else "mixed"
    return mode, dtype, page_dtype, draw(st.integers(1, 256)), draw(st.integers(1, 64)), num_queries


def write_table(folder: Path, architecture: int, key: Key, tiles: AttentionTiles) -> None:
    document = {"entries": [as_entry(key, asdict(tiles))]}
    (folder / f"sm_{architecture}.json").write_text(json.dumps(document))


def assert_legal(tiles: AttentionTiles, group_size: int) -> None:
    """The tiles meet the requirements of the kernel's indexing and of Triton's products."""
    for size in (tiles.block_m, tiles.block_t, tiles.num_warps):
        assert size & (size - 1) == 0
    assert min(tiles.block_m, tiles.block_t) >= 16
    assert tiles.block_m >= group_size, "all heads that share keys and values are rows of one tile"
    assert tiles.part_tokens % tiles.block_t == 0, "a part is made of whole tiles"
    assert tiles.num_stages >= 1


def test_an_entry_is_found_by_all_of_its_key(tmp_path: Path) -> None:
    write_table(tmp_path, 90, KEY, TILES)
    assert tuned_values(KEY, 90, tmp_path) == asdict(TILES)
    assert tuned_values(KEY, 80, tmp_path) is None
    others = (
        replace(KEY, kernel="other"),
        replace(KEY, mode="mixed"),
        replace(KEY, dtype="float32"),
        replace(KEY, page_dtype="bfloat16"),
        replace(KEY, head_dim=64),
        replace(KEY, rows=32),
    )
    for other in others:
        assert tuned_values(other, 90, tmp_path) is None, other


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(1, 64))
def test_shapes_that_fill_the_same_tile_have_one_key(num_queries: int, group_size: int, other_group_size: int) -> None:
    keys = [
        Key.of_attention("mixed", torch.bfloat16, torch.bfloat16, 128, size, num_queries)
        for size in (group_size, other_group_size)
    ]
    small, large = sorted(min(max(num_queries * size, 16), 128) for size in (group_size, other_group_size))
    assert (keys[0] == keys[1]) == (triton.next_power_of_2(small) == triton.next_power_of_2(large))


def test_measured_tiles_beat_the_formula_for_plain_shapes_on_that_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes with windows or soft caps use the formula: they need more registers and were not measured."""
    shape: Shape = ("decode", torch.bfloat16, torch.int8, 128, 4, 1)
    write_table(tmp_path, 90, KEY, TILES)
    monkeypatch.setattr(attention_tiles, "tuned_values", partial(tuned_values, tables=tmp_path))
    choose = tiles_for.__wrapped__  # without its cache, which outlives this test
    assert choose(*shape, 90) == TILES
    for by_formula in (choose(*shape, 90, is_plain=False), choose(*shape, 80)):
        assert by_formula != TILES
        assert_legal(by_formula, group_size=4)


@given(shapes(), st.sampled_from(sorted(SHARED_KIB)), st.booleans())
def test_tiles_by_formula_are_legal_and_fit_into_shared_memory(shape: Shape, architecture: int, is_plain: bool) -> None:
    """Shared memory holds at least the queries and the tiles of keys and values in flight; what the compiler adds is
    checked by tests/benchmarks/kernels/test_machine_code.py."""
    _, dtype, page_dtype, head_dim, group_size, _ = shape
    tiles = formula_tiles(*shape, architecture, is_plain)
    assert_legal(tiles, group_size)
    columns = max(triton.next_power_of_2(head_dim), 16)
    on_their_way = (tiles.num_stages - 1) * 2 * tiles.block_t * columns * page_dtype.itemsize
    assert on_their_way + tiles.block_m * columns * dtype.itemsize <= SHARED_KIB[architecture] * 1024


@given(shapes(), st.booleans())
def test_consumer_devices_get_the_tiles_of_the_last_generation_with_their_instructions(
    shape: Shape, is_plain: bool
) -> None:
    """sm_120 has the products and the shared memory of sm_89, although its number is above that of sm_90."""
    assert formula_tiles(*shape, 120, is_plain) == formula_tiles(*shape, 89, is_plain)


@pytest.mark.parametrize("page_dtype", [torch.bfloat16, torch.int8])
@pytest.mark.parametrize("architecture", sorted(SHARED_KIB))
def test_only_latents_of_16_bits_are_read_by_halves_where_wgmma_is(page_dtype: torch.dtype, architecture: int) -> None:
    has_halves = halves_values(torch.bfloat16, page_dtype, 512, has_latents=True, architecture=architecture)
    heads = heads_of_tile(128, 512, has_halves)
    tiles = formula_tiles("decode", torch.bfloat16, page_dtype, 512, heads, 1, architecture, False, has_halves)
    is_expected = page_dtype == torch.bfloat16 and 90 <= architecture < 120
    assert (heads, tiles.block_m, tiles.value_tiles) == ((64, 64, 2) if is_expected else (32, 32, 1))
    few = formula_tiles("decode", torch.bfloat16, page_dtype, 512, 16, 1, architecture, False, has_halves)
    assert (few.block_m, few.value_tiles) == (16, 1)
    assert not halves_values(torch.bfloat16, page_dtype, 512, has_latents=False, architecture=architecture)


@given(st.integers(1, 64), st.none() | st.integers(1, 8192), st.integers(1, 128))
def test_a_window_has_parts_for_its_own_tokens(max_parts: int, window: int | None, num_queries: int) -> None:
    most = most_parts(TILES, window, max_parts, num_queries)
    assert 1 <= most <= max_parts
    if window is None:
        assert most == max_parts
    else:
        # A tile of a window begins inside a step at worst.
        tokens = window + num_queries - 1 + TILES.block_t - 1
        assert most == max_parts or (most - 1) * TILES.part_tokens < tokens <= most * TILES.part_tokens


@given(st.integers(1, 512), st.integers(1, 64), st.integers(1, 64), st.integers(1, 200))
def test_a_grid_fills_the_device_and_has_few_programs_that_may_be_empty(
    num_tiles: int, num_kv_heads: int, num_parts: int, num_multiprocessors: int
) -> None:
    programs = num_programs(num_tiles, num_kv_heads, num_parts, num_multiprocessors)
    assert 1 <= programs <= num_parts
    grid = num_tiles * num_kv_heads * programs
    assert programs == num_parts or grid >= 32 * num_multiprocessors, "enough for long rows among short ones"
    assert programs == 1 or grid < 32 * num_multiprocessors + num_tiles * num_kv_heads


def test_256_rows_have_three_programs_each_and_one_row_has_all_of_its_parts() -> None:
    """Llama 3.1 8B on an H100 of 132 multiprocessors."""
    assert num_programs(256, 8, 33, 132) == 3
    assert num_programs(64, 8, 33, 132) == 9
    assert num_programs(1, 8, 33, 132) == 33


PROMPT = formula_tiles("mixed", torch.bfloat16, torch.bfloat16, 128, 4, 64, 90)


def cut(num_queries: int, num_rows: int, max_tokens: int) -> int:
    """Parts of prompts of Llama 3.1 8B on an H100: tiles of 32 queries, 8 key/value heads."""
    return prompt_parts(PROMPT, 4, num_queries, num_rows, 8, max_tokens, 132)


def test_few_queries_behind_a_long_context_fill_the_device_in_parts() -> None:
    assert cut(64, 1, 8256) == cut(32, 1, 8256) == 132 // 8, "parts of all tiles of the row together"
    assert cut(64, 1, 512) == 1, "short contexts are not worth another launch"
    assert cut(300, 1, 8256) == 1, "ten tiles of eight heads fill more than half of the device"
    assert cut(8192, 64, 8256) == 1


@given(st.integers(1, 64), st.integers(1, 4000), st.integers(1, 200_000))
def test_large_tiles_are_cut_only_where_they_fill_less_than_half_of_the_device(
    num_rows: int, more: int, max_tokens: int
) -> None:
    parts = cut(num_rows + more, num_rows, max_tokens)
    least_tiles = max(-(-(num_rows + more) // 32), num_rows)
    assert parts == 1 or (parts == 16 and 2 * least_tiles * 8 <= 132 and max_tokens > 512)


@given(st.integers(1, 512), st.integers(257, 200_000))
def test_a_few_queries_a_row_are_cut_by_their_row_alone_as_decodes_are(num_rows: int, max_tokens: int) -> None:
    """As the rows of speculative decoding will be: in any batch."""
    tiles = formula_tiles("mixed", torch.bfloat16, torch.bfloat16, 128, 4, 5, 90)
    assert prompt_parts(tiles, 4, 5 * num_rows, num_rows, 8, max_tokens, 132) == 33


def tiles_in(folder: Path) -> list[AttentionTiles]:
    tables = (json.loads(path.read_text()) for path in sorted(folder.glob("sm_*.json")))
    return [AttentionTiles(**entry["values"]) for table in tables for entry in table["entries"]]


def test_shipped_tables_hold_legal_tiles(tmp_path: Path) -> None:
    """None is shipped yet; a table that breaks a rule shows that the check would notice."""
    for tiles in tiles_in(TABLES):
        assert_legal(tiles, group_size=1)
    write_table(tmp_path, 90, KEY, replace(TILES, part_tokens=500))
    (flawed,) = tiles_in(tmp_path)
    with pytest.raises(AssertionError, match="whole tiles"):
        assert_legal(flawed, group_size=1)
