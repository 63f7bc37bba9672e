"""The text model of a checkpoint with other models loads, whichever of three names its tensors have."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.runner import load_runner
from tests.engine.checkpoints import TinyModel
from tests.engine.stepper import generate, random_prompt

_TOWERS = ("vision_tower.", "vision_model.", "multi_modal_projector.", "embed_vision.", "visual.")
PROMPT = random_prompt(1, 20)


def own_name(name: str) -> str:
    """The name of a tensor in the text model alone; that of a tower's without a prefix."""
    name = name.removeprefix("model.") if name.startswith("model.language_model.") else name
    name = name.replace("language_model.model.", "model.").replace("language_model.lm_head.", "lm_head.")
    if name.startswith("language_model."):
        return f"model.{name.removeprefix('language_model.')}"
    bare = name.removeprefix("model.")
    return bare if bare.startswith(_TOWERS) else name


def newer_name(name: str) -> str:
    """Text model and towers are parts of `model`, beside the head."""
    if name.startswith(_TOWERS):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def older_name(name: str) -> str:
    """The text model has its head, and is beside the towers."""
    return name if name.startswith(_TOWERS) else f"language_model.{name}"


@pytest.mark.parametrize(
    "variant", ["gemma3-with-vision", "gemma4-with-experts", "llama4-with-vision", "mistral3", "qwen3.5-with-vision"]
)
def test_newer_older_and_own_names_are_one_model(
    tiny_model: Callable[[str], TinyModel], tmp_path: Path, variant: str
) -> None:
    source = tiny_model(variant).folder
    tensors = load_file(source / "model.safetensors")
    assert any(own_name(name).startswith(_TOWERS) for name in tensors)
    expected = tokens_of(source)
    names_seen = set()
    for spell in (newer_name, older_name, str):
        renamed = {spell(own_name(name)): tensor for name, tensor in tensors.items()}
        assert len(renamed) == len(tensors)
        names_seen.add(frozenset(renamed))
        folder = tmp_path / spell.__name__
        shutil.copytree(source, folder)
        save_file(renamed, folder / "model.safetensors")
        assert tokens_of(folder) == expected
    assert len(names_seen) == 3
    assert frozenset(tensors) in names_seen


def tokens_of(folder: Path) -> list[int]:
    """Five greedy tokens of the model in the folder."""
    config = EngineConfig(str(folder), kv_cache_bytes=1 << 20, max_running=2, num_threads=1)
    return generate(load_runner(config).runner, [PROMPT], 5, chunk=64)[0]
