"""The architectures that people run most: each is computed as transformers computes it, or refused in a sentence."""

import runpy
from collections import Counter
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.kernels.torch_operators import TorchOperators
from engine.models.registry import ARCHITECTURES
from engine.runner import load_runner
from tests.engine.checkpoints import VARIANTS
from tests.engine.chunked_logits import chunked_logits
from tests.engine.fifty_names import NAMES, save_name, way_of
from tests.engine.stepper import generate, random_prompt

ROOT = Path(__file__).parents[3]
PROMPTS = [random_prompt(1, 23), random_prompt(2, 40)]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ARCHITECTURES])
def test_a_name_without_code_of_its_own_is_computed_as_by_transformers_or_refused(name: str, tmp_path: Path) -> None:
    way = way_of(name)
    if way != "transformers":
        assert way.startswith(f"no code for architecture '{name}', ")
        assert "\n" not in way
        return
    tiny = save_name(name, tmp_path)
    with torch.inference_mode():
        logits = chunked_logits(tmp_path, PROMPTS[1], page_tokens=4, chunk=13, operators=TorchOperators())
    torch.testing.assert_close(logits, tiny.logits(PROMPTS[1]), atol=1e-4, rtol=0)
    loaded = load_runner(EngineConfig(str(tmp_path), kv_cache_bytes=4 << 20, max_running=2, num_threads=1))
    assert generate(loaded.runner, PROMPTS, 8, chunk=16) == [tiny.greedy(prompt, 8) for prompt in PROMPTS]


def test_a_name_with_code_of_its_own_is_compared_by_the_tests_of_its_checkpoints() -> None:
    with_checkpoints = {architecture for architecture, _ in VARIANTS.values()}
    assert {name for name in NAMES if way_of(name) == "agon"} <= with_checkpoints


def test_most_of_them_are_loaded() -> None:
    count = Counter(way_of(name) in ("agon", "transformers") for name in NAMES)
    assert count[True] >= 50, [name for name in NAMES if way_of(name) not in ("agon", "transformers")]


def test_the_page_has_the_table_of_ways() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "fifty_names_table.py"))
    assert written["PAGE"].read_text() == written["page"](), "run `make pages`"
