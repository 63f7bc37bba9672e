"""Whole models with quantised weights on the runner of devices over Triton's kernels: the tokens are those of the same
model with its dequantised weights."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from engine.kernels.quantised import quantised
from engine.runner import load_runner
from tests.engine.checkpoints import save
from tests.engine.formats import mxfp4_folders
from tests.engine.formats.quantised_folders import FORMATS, write
from tests.engine.formats.test_quantised_experts import without_routers
from tests.engine.runner.device.device_runners import settings_for
from tests.engine.stepper import generate, random_prompt

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)

from tests.engine.runner.device.interpreted import HAS_CUDA, triton_runner

#: The second one decodes beside a chunk of the first one, then in a graph of two rows.
PROMPTS = [random_prompt(index, length) for index, length in enumerate((5, 1))]
NUM_TOKENS = 3
SMALL = {"max_batched_tokens": 5, "max_model_len": 12}


@pytest.fixture(autouse=True)
def _as_on_a_device() -> Iterator[None]:
    """NumPy warns where a device just wraps around."""
    with np.errstate(all="ignore"):
        yield


def tokens_of(folder: Path) -> list[list[int]]:
    return generate(load_runner(settings_for(folder)).runner, PROMPTS, NUM_TOKENS, chunk=4)


@pytest.mark.parametrize("name", ["gptq act-order", "fp8 by block"])
def test_tokens_are_those_of_the_dequantised_weights(tmp_path: Path, name: str) -> None:
    settings, pack = FORMATS[name]
    source = save("llama", tmp_path / "source", num_hidden_layers=1).folder
    write(source, tmp_path / "packed", settings, pack)
    write(source, tmp_path / "plain", None, pack)
    runner = triton_runner(tmp_path / "packed", **SMALL)
    assert "quantised products for" in runner.operators_name
    assert runner.operators_name.endswith("CUDA graphs")
    assert generate(runner, PROMPTS, NUM_TOKENS, chunk=4) == tokens_of(tmp_path / "plain")


def test_so_are_those_of_experts_in_tensors_of_their_own(tmp_path: Path) -> None:
    """In graphs: the device chooses experts."""
    settings, pack = FORMATS["packed 4 bits asymmetric"]
    source = save("mixtral", tmp_path / "source", num_hidden_layers=1).folder
    write(source, tmp_path / "packed", settings, without_routers(pack, num_experts=4))
    write(source, tmp_path / "plain", None, without_routers(pack, num_experts=4))
    runner = triton_runner(tmp_path / "packed", **SMALL)
    assert runner.operators_name.endswith("CUDA graphs")
    assert generate(runner, PROMPTS, NUM_TOKENS, chunk=4) == tokens_of(tmp_path / "plain")


def test_so_are_those_of_gpt_oss_in_mxfp4(tmp_path: Path) -> None:
    folder = mxfp4_folders.write(
        tmp_path, "gpt-oss", hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_local_experts=4
    )
    runner = triton_runner(folder / "packed", **SMALL)
    assert runner.operators_name.endswith("CUDA graphs")
    assert generate(runner, PROMPTS, NUM_TOKENS, chunk=4) == tokens_of(folder / "plain")


@pytest.mark.skipif(HAS_CUDA, reason="compared with another rounding of the same numbers")
def test_weights_rounded_to_4_bits_when_they_are_loaded(tmp_path: Path) -> None:
    """The tokens are those of a checkpoint with the rounded weights; the head has 8 bits."""
    folder = save("llama", tmp_path / "model", num_hidden_layers=1).folder
    tensors = load_file(folder / "model.safetensors")
    shutil.copytree(folder, tmp_path / "rounded")
    for name, weight in tensors.items():
        if weight.ndim == 2 and "embed" not in name:
            bits, group = (8, 128) if "lm_head" in name else (4, 64)
            tensors[name] = quantised(weight, bits, group).dequantised()
    save_file(tensors, tmp_path / "rounded" / "model.safetensors")
    runner = triton_runner(folder, weights="int4", **SMALL)
    assert runner.operators_name.startswith("triton-int4, quantised products for ")
    assert generate(runner, PROMPTS, NUM_TOKENS, chunk=4) == tokens_of(tmp_path / "rounded")
