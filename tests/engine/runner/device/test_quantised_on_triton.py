"""Whole models with quantised weights on the runner of devices over Triton's kernels: the tokens are those of the same
model with its dequantised weights."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.runner import load_runner
from tests.engine.formats.quantised_folders import FORMATS, write
from tests.engine.runner.device.device_runners import settings_for
from tests.engine.stepper import generate, random_prompt

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)

from tests.engine.runner.device.interpreted import small, triton_runner

PROMPTS = [random_prompt(index, length) for index, length in enumerate((9, 1))]
NUM_TOKENS = 4


@pytest.fixture(autouse=True)
def _as_on_a_device() -> Iterator[None]:
    """NumPy warns where a device just wraps around."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(
    "name",
    ["awq", "gptq", "gptq act-order", "gptq 8 bits", "packed 4 bits asymmetric", "int8", "fp8", "fp8 by block"],
)
def test_tokens_are_those_of_the_dequantised_weights(tmp_path: Path, name: str) -> None:
    settings, pack = FORMATS[name]
    source = small("llama", tmp_path / "source").folder
    write(source, tmp_path / "packed", settings, pack)
    write(source, tmp_path / "plain", None, pack)
    wanted = generate(load_runner(settings_for(tmp_path / "plain")).runner, PROMPTS, NUM_TOKENS, chunk=4)
    runner = triton_runner(tmp_path / "packed")
    assert "quantised products for" in runner.operators_name
    assert runner.operators_name.endswith("CUDA graphs")
    assert generate(runner, PROMPTS, NUM_TOKENS, chunk=4) == wanted
