"""Whole models with quantised weights on the runner of devices over Triton's kernels: the tokens are those of the same
model with its dequantised weights."""

import importlib.util
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.kernels.quantised import quantised
from engine.kernels.torch_operators import TorchOperators
from engine.runner import load_runner
from tests.engine.checkpoints import save
from tests.engine.chunked_logits import chunked_logits
from tests.engine.formats import mxfp4_folders
from tests.engine.formats.quantised_folders import FORMATS, write
from tests.engine.formats.test_quantised_experts import without_routers
from tests.engine.runner.device.device_runners import settings_for
from tests.engine.stepper import generate, random_prompt

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)

from engine.kernels.gpu.operators import GpuOperators
from tests.engine.runner.device.interpreted import HAS_CUDA, triton_runner

#: The second one decodes beside a chunk of the first one, then in a graph of two rows.
PROMPTS = [random_prompt(index, length) for index, length in enumerate((5, 1))]
NUM_TOKENS = 3
SMALL: dict[str, Any] = {"max_batched_tokens": 5, "max_model_len": 12}


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


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_rounded_when_they_are_loaded(tmp_path: Path, bits: int) -> None:
    """Logits are those of a checkpoint with the rounded weights; beside 4 bits the head has 8."""
    folder = save("llama", tmp_path / "model", num_hidden_layers=1).folder
    tensors = load_file(folder / "model.safetensors")
    shutil.copytree(folder, tmp_path / "rounded")
    for name, weight in tensors.items():
        if weight.ndim == 2 and "embed" not in name:
            is_small = bits == 4 and "lm_head" not in name
            group = weight.shape[1] if bits == 8 else 64 if is_small else 128
            matrix = quantised(weight, 4 if is_small else 8, group)
            if isinstance(matrix.zeros, torch.Tensor):  # scales and zero points are float16 beside each other
                matrix = replace(matrix, zeros=matrix.zeros.half().float())
            tensors[name] = matrix.dequantised()
    save_file(tensors, tmp_path / "rounded" / "model.safetensors")
    operators = GpuOperators(has_int4_weights=bits == 4, has_int8_weights=bits == 8)
    device = torch.device("cuda" if HAS_CUDA else "cpu")
    with torch.inference_mode():
        ours = chunked_logits(folder, PROMPTS[0], page_tokens=4, chunk=5, operators=operators, device=device)
        plain = chunked_logits(tmp_path / "rounded", PROMPTS[0], page_tokens=4, chunk=5, operators=TorchOperators())
    torch.testing.assert_close(ours.cpu(), plain, atol=5e-3, rtol=0)  # scales beside zero points are float16
