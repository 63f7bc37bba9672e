"""Damaged and hostile model folders: each is refused in one clear line, quickly and in little memory, or harmless."""

import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.kernels.torch_operators import TorchOperators
from engine.loader import Checkpoint, CheckpointWeights
from engine.runner import load_runner
from tests.engine.checkpoints import TinyModel
from tests.engine.corruptions import Corruption, Outcome, corruptions
from tests.engine.stepper import generate, random_prompt

PROMPT = random_prompt(1, 20)
MOST_BYTES = 1 << 30  #: of address space that a load may take in addition; 1e9 layers took 7.9 GB
MOST_SECONDS = 5.0


def load(folder: Path) -> list[int]:
    """Five greedy tokens of the model in the folder."""
    config = EngineConfig(str(folder), kv_cache_bytes=1 << 20, max_running=2, num_threads=1)
    return generate(load_runner(config).runner, [PROMPT], 5, chunk=64)[0]


@pytest.fixture(scope="module")
def unharmed(tiny_model: Callable[[str], TinyModel]) -> dict[str, list[int]]:
    """The tokens of the checkpoints that corruptions start from."""
    return {name: load(tiny_model(name).folder) for name in ("gpt2", "llama")}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Allocations fail that would need much more memory than the process has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("corruption", corruptions(), ids=lambda corruption: corruption.name)
@pytest.mark.usefixtures("little_memory")
def test_a_corrupt_checkpoint_is_refused_in_one_line_or_harmless(
    corruption: Corruption,
    tmp_path: Path,
    tiny_model: Callable[[str], TinyModel],
    unharmed: dict[str, list[int]],
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model(corruption.base).folder, folder)
    corruption.apply(folder)
    started = time.perf_counter()
    try:
        tokens = load(folder)
    except CheckpointError as error:
        reason = str(error)
    else:
        reason = ""
        assert corruption.outcome is not Outcome.REFUSED
        assert corruption.outcome is Outcome.ANY or tokens == unharmed[corruption.base]
    assert time.perf_counter() - started < MOST_SECONDS
    assert "\n" not in reason
    assert len(reason) < 600


def test_there_are_enough_corruptions() -> None:
    assert len(corruptions()) >= 400


def test_large_finite_values_are_no_infinities(tmp_path: Path, tiny_model: Callable[[str], TinyModel]) -> None:
    """Their sum overflows, which alone proves nothing."""
    shutil.copytree(tiny_model("llama").folder, tmp_path / "model")
    save_file({"a": torch.full((64,), 3e38)}, tmp_path / "model" / "model.safetensors")
    weights = CheckpointWeights(
        Checkpoint(tmp_path / "model"),
        dtype=torch.float32,
        device=torch.device("cpu"),
        operators=TorchOperators(),
    )
    assert weights.take("a", 64).tolist() == pytest.approx([3e38] * 64)
