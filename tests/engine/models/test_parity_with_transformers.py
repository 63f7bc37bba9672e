"""Every architecture computes what transformers computes, for any page size, chunk size and batch."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.kernels.choice import choose_operators
from engine.kernels.torch_operators import TorchOperators
from engine.runner import load_runner
from tests.engine.checkpoints import VARIANTS, TinyModel
from tests.engine.chunked_logits import chunked_logits
from tests.engine.stepper import generate, random_prompt

TinyModels = Callable[[str], TinyModel]
PROMPTS = [random_prompt(1, 37), random_prompt(2, 5), random_prompt(3, 61), random_prompt(4, 1)]
CPU = torch.device("cpu")
DEMO_MODELS = Path(__file__).parents[3] / "demo_models"


@pytest.mark.parametrize(("page_tokens", "chunk"), [(16, 50), (7, 3)])
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_transformers(tiny_model: TinyModels, name: str, page_tokens: int, chunk: int) -> None:
    tiny = tiny_model(name)
    prompt = random_prompt(9, 50)
    for operators in (TorchOperators(), choose_operators(CPU, torch.float32, 1, allow_compiled=True)):
        with torch.inference_mode():
            logits = chunked_logits(tiny.folder, prompt, page_tokens=page_tokens, chunk=chunk, operators=operators)
        torch.testing.assert_close(logits, tiny.logits(prompt), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", VARIANTS)
def test_bfloat16_logits_of_the_cpp_operators_are_as_near_as_those_of_torch(tiny_model: TinyModels, name: str) -> None:
    """At most 1.5 times the root mean square error of the torch operators, plus 0.2 % of the logits' own."""
    tiny = tiny_model(name)
    prompt = random_prompt(9, 50)
    exact = tiny.logits(prompt)
    errors = []
    for operators in (TorchOperators(), choose_operators(CPU, torch.bfloat16, 1, allow_compiled=True)):
        with torch.inference_mode():
            logits = chunked_logits(
                tiny.folder, prompt, page_tokens=16, chunk=20, operators=operators, dtype=torch.bfloat16
            )
        errors.append(float((logits.float() - exact).square().mean().sqrt()))
    assert errors[1] <= 1.5 * errors[0] + 0.002 * float(exact.square().mean().sqrt())


@pytest.mark.parametrize(("page_tokens", "chunk"), [(16, 256), (7, 5)])
@pytest.mark.parametrize("name", VARIANTS)
def test_greedy_tokens_are_those_of_transformers(
    tiny_model: TinyModels, name: str, page_tokens: int, chunk: int
) -> None:
    tiny = tiny_model(name)
    expected = [tiny.greedy(prompt, 12) for prompt in PROMPTS]
    config = EngineConfig(
        str(tiny.folder), page_tokens=page_tokens, kv_cache_bytes=4 << 20, max_running=4, num_threads=1
    )
    assert generate(load_runner(config).runner, PROMPTS, 12, chunk=chunk) == expected
    config = replace(config, operators="torch")
    assert generate(load_runner(config).runner, PROMPTS, 12, chunk=chunk) == expected


@pytest.mark.parametrize("name", ["finch", "robin", "raven", "wren"])
def test_the_demo_models_continue_as_in_transformers(name: str) -> None:
    folder = DEMO_MODELS / name
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"{folder} is not there")
    prompts = [random_prompt(i, length, 2000) for i, length in enumerate((3, 40, 90))]
    expected = [TinyModel(folder).greedy(prompt, 24) for prompt in prompts]
    loaded = load_runner(EngineConfig(str(folder), kv_cache_bytes=32 << 20, max_running=4, num_threads=1))
    tokens = generate(loaded.runner, prompts, 24, chunk=32)
    ends = loaded.limits.eos_token_ids
    for ours, theirs in zip(tokens, expected, strict=True):
        stop = next((i + 1 for i, token in enumerate(ours) if token in ends), len(ours))
        assert ours[:stop] == theirs[:stop]
