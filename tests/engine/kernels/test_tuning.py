"""Tables of measured tile sizes: an entry is found by its shape class alone, and formulas serve where there is none."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels.gpu.attention_tiles import AttentionTiles, Mode, formula_tiles, tiles_for
from engine.kernels.gpu.tuning import TABLES, Key, as_entry, tuned_values

KEY = Key.of_attention("decode", torch.bfloat16, torch.int8, 128, 4, 1)
VALUES = {"block_m": 16, "block_t": 32, "part_tokens": 512, "num_warps": 4, "num_stages": 4}


def test_an_entry_is_found_by_all_of_its_key(tmp_path: Path) -> None:
    (tmp_path / "sm_90.json").write_text(json.dumps({"entries": [as_entry(KEY, VALUES)]}))
    assert tuned_values(KEY, 90, tmp_path) == VALUES
    assert tuned_values(KEY, 80, tmp_path) is None
    for other in (replace(KEY, mode="mixed"), replace(KEY, page_dtype="bfloat16"), replace(KEY, rows=8)):
        assert tuned_values(other, 90, tmp_path) is None


def test_shapes_of_one_class_have_one_key() -> None:
    assert Key.of_attention("decode", torch.bfloat16, torch.int8, 128, 3, 1) == KEY
    assert Key.of_attention("mixed", torch.float32, torch.float32, 64, 8, 500).rows == 128


@pytest.mark.parametrize("mode", ["decode", "mixed"])
def test_consumer_blackwell_gets_tiles_that_fit_into_its_shared_memory(mode: Mode) -> None:
    """99 KiB, as on sm_89; sm_100 has as much as sm_90."""
    shape = (mode, torch.bfloat16, torch.bfloat16, 128, 4, 1 if mode == "decode" else 512)
    assert formula_tiles(*shape, 120) == formula_tiles(*shape, 89)
    assert formula_tiles(*shape, 100) == formula_tiles(*shape, 90)


@pytest.mark.parametrize("architecture", [80, 89, 90])
def test_every_entry_of_a_table_is_a_set_of_tiles(architecture: int) -> None:
    path = TABLES / f"sm_{architecture}.json"
    entries = json.loads(path.read_text())["entries"] if path.exists() else []
    for entry in entries:
        AttentionTiles(**entry["values"])
    if not entries:
        shape = ("decode", torch.bfloat16, torch.bfloat16, 128, 4, 1, architecture)
        assert tiles_for(*shape) == formula_tiles(*shape)
