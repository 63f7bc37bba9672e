"""Workers of one checkpoint on one copy of its weights: the same tokens as ever, and never another checkpoint's."""

import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.kernels.cpu.build import cache_folder
from engine.loader import CheckpointWeights
from engine.runner import load_runner
from tests.engine.checkpoints import TinyModel
from tests.engine.stepper import generate, random_prompt

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packed weights files are for Linux")
PROMPT = random_prompt(1, 20)


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of packed weights files, with the operators that are built already beside it."""
    operators = cache_folder()
    operators.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "operators").symlink_to(operators)
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


def tokens(folder: Path, share_weights: str, weights: str = "auto") -> list[int]:
    config = EngineConfig(
        str(folder),
        kv_cache_bytes=1 << 20,
        max_running=2,
        num_threads=1,
        share_weights=share_weights,  # type: ignore[arg-type]
        weights=weights,  # type: ignore[arg-type]
    )
    return generate(load_runner(config).runner, [PROMPT], 8, chunk=64)[0]


@pytest.mark.parametrize("weights", ["auto", "int8"])
@pytest.mark.parametrize(
    "name",
    ["llama", "llama-tied", "gpt2", "gpt-neox", "opt", "gemma3-with-vision", "mixtral", "jamba", "phi3", "qwen3-next"],
)
def test_freshly_packed_and_found_weights_give_the_same_tokens(
    packed: Path, tiny_model: Callable[[str], TinyModel], monkeypatch: pytest.MonkeyPatch, name: str, weights: str
) -> None:
    folder = tiny_model(name).folder
    expected = tokens(folder, "off", weights)
    assert not packed.exists()
    assert tokens(folder, "on", weights) == expected
    (file,) = packed.iterdir()
    read = []
    take = CheckpointWeights.take

    def noted(self: CheckpointWeights, name: str, *shape: int, dtype: torch.dtype | None = None) -> object:
        read.append((name, len(shape)))
        return take(self, name, *shape, dtype=dtype)

    monkeypatch.setattr(CheckpointWeights, "take", noted)
    assert tokens(folder, "on", weights) == expected
    assert list(packed.iterdir()) == [file]
    assert all(num_dims == 1 or "conv1d" in name or "A_log" in name for name, num_dims in read)


def test_a_checkpoint_that_was_changed_gets_a_file_of_its_own(
    packed: Path, tmp_path: Path, tiny_model: Callable[[str], TinyModel]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("llama").folder, folder)
    tokens(folder, "on")
    tokens(folder, "on", "int8")
    assert len(list(packed.iterdir())) == 2
    file = folder / "model.safetensors"
    status, content = file.stat(), bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4000] = bytes(4000)  # where the revision takes no sample
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert tokens(folder, "on") == tokens(folder, "off")
    assert len(list(packed.iterdir())) == 3


def test_where_no_file_can_be_written_a_worker_keeps_its_own_copy_and_says_so_once(
    packed: Path, tiny_model: Callable[[str], TinyModel], caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_model("llama").folder
    packed.write_text("in the way")
    with caplog.at_level(logging.INFO, logger="engine.runner.packed_weights"):
        assert tokens(folder, "on") == tokens(folder, "off")
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "weights are not shared with other workers"
    ]


def test_a_file_of_other_sizes_is_not_used(
    packed: Path, tiny_model: Callable[[str], TinyModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runner.packed_weights.packed_weights_key", lambda *parts: "one-key-for-all")
    tokens(tiny_model("llama").folder, "on")
    gpt2 = tiny_model("gpt2").folder
    assert tokens(gpt2, "on") == tokens(gpt2, "off")
    assert not list(packed.iterdir())


def test_small_models_are_packed_by_each_worker_unless_told_otherwise(
    packed: Path, tiny_model: Callable[[str], TinyModel]
) -> None:
    tokens(tiny_model("llama").folder, "auto")
    assert not packed.exists()
