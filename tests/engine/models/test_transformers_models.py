"""Architectures without code: transformers' code computes on our pages what it computes alone, or is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.kernels.choice import choose_operators
from engine.kernels.torch_operators import TorchOperators
from engine.layers.weights import ShapesOnly
from engine.memory.planning.planner import plan_layers, pool_of
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.models.stored_layers import layers_from_config
from engine.models.through_transformers.examination import examine
from engine.runner import load_runner
from tests.engine.checkpoints import TinyModel, TinyModels
from tests.engine.chunked_logits import chunked_logits
from tests.engine.small_engines import GREEDY, PROMPTS, load, tokens_of
from tests.engine.stepper import generate, random_prompt
from tests.engine.transformers_checkpoints import TRANSFORMERS_VARIANTS, save_transformers_variant

MIXED_LENGTHS = [random_prompt(1, 37), random_prompt(2, 5), random_prompt(3, 61), random_prompt(4, 1)]
CPU = torch.device("cpu")

Saved = Callable[[str], TinyModel]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A variant's checkpoint by name, made on first use."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("transformers")
    return cache(lambda name: save_transformers_variant(name, root / name))


@pytest.mark.parametrize("name", TRANSFORMERS_VARIANTS)
def test_logits_are_those_of_transformers(saved: Saved, name: str) -> None:
    tiny, prompt = saved(name), random_prompt(9, 50)
    for operators in (TorchOperators(), choose_operators(CPU, torch.float32, 1, allow_compiled=True)):
        for page_tokens, chunk in ((16, 50), (4, 11)):
            with torch.inference_mode():
                logits = chunked_logits(tiny.folder, prompt, page_tokens=page_tokens, chunk=chunk, operators=operators)
            torch.testing.assert_close(logits, tiny.logits(prompt), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", TRANSFORMERS_VARIANTS)
def test_greedy_tokens_are_those_of_transformers(saved: Saved, name: str) -> None:
    tiny = saved(name)
    expected = [tiny.greedy(prompt, 12) for prompt in MIXED_LENGTHS]
    compiled = EngineConfig(str(tiny.folder), kv_cache_bytes=4 << 20, max_running=4, num_threads=1)
    plain = replace(compiled, operators="torch")
    for page_tokens, chunk, config in ((16, 256, compiled), (4, 13, compiled), (4, 7, plain)):
        loaded = load_runner(replace(config, page_tokens=page_tokens))
        assert loaded.info.operators.startswith("transformers, ")
        assert generate(loaded.runner, MIXED_LENGTHS, 12, chunk=chunk) == expected


@pytest.mark.parametrize("name", TRANSFORMERS_VARIANTS)
def test_so_they_are_in_a_small_pool_that_preempts_and_from_a_warm_prefix_cache(saved: Saved, name: str) -> None:
    tiny = saved(name)
    expected = [tiny.greedy(prompt, GREEDY.max_tokens) for prompt in PROMPTS]
    plenty = load(tiny.folder, page_tokens=16)
    scarce = load(tiny.folder, page_tokens=4, kv_cache_bytes=24 * page_bytes(tiny.folder))
    for llm in (plenty, scarce):
        assert tokens_of(llm, PROMPTS, GREEDY) == expected
        assert tokens_of(llm, PROMPTS, GREEDY) == expected, "the second time from a warm prefix cache"
        llm._core.check_integrity()
    assert plenty.stats().prefix_hit_tokens_total > 0
    assert scarce.stats().preemptions_total > 0


def page_bytes(folder: Path) -> int:
    """Bytes of four tokens in all layers."""
    values = json.loads((folder / "config.json").read_text())
    layers = layers_from_config(values, dtype="float32", allow_transformers=True).layers
    return sum(kind.small_page_bytes for kind in plan_layers(layers, page_tokens=4).chosen.types)


@pytest.mark.parametrize("name", ["vaultgemma", "dots1", "youtu"])
def test_the_plan_of_the_pool_is_the_worker_s(saved: Saved, name: str) -> None:
    folder = saved(name).folder
    values = json.loads((folder / "config.json").read_text())
    layers = layers_from_config(values, dtype="float32", allow_transformers=True)
    assert (layers.is_served, layers.through_transformers) == (True, True)
    config = EngineConfig(str(folder), kv_cache_bytes=1 << 20, max_running=2, num_threads=1)
    planned = pool_of(plan_layers(layers.layers, page_tokens=config.page_tokens).chosen, 1 << 20)
    loaded = load_runner(config)
    assert loaded.pool_plan == planned
    dummy = load_runner(replace(config, load_format="dummy"))
    assert dummy.pool_plan == planned
    assert dummy.info.num_parameters == loaded.info.num_parameters


def test_a_large_model_is_planned_from_its_config_alone() -> None:
    config = {
        "architectures": ["ApertusForCausalLM"],
        "model_type": "apertus",
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "intermediate_size": 43008,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    }
    layers = layers_from_config(config, allow_transformers=True)
    assert (len(layers.layers), layers.max_model_len, layers.is_served) == (80, 65536, True)


_REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "alibi": (
        "BloomForCausalLM",
        {"n_layer": 2, "hidden_size": 32, "n_head": 4},
        "distance .alibi. are not",
    ),
    "own attention": (
        "XGLMForCausalLM",
        {"d_model": 32, "attention_heads": 2, "num_layers": 2, "ffn_dim": 48},
        "attention interface|cannot be examined",
    ),
    "attends twice": ("DiffLlamaForCausalLM", {}, "attends more than once"),
    "recurrent": ("RecurrentGemmaForCausalLM", {"num_hidden_layers": 3}, "layers of type .'linear_attention'. are not"),
    "no attention": ("RwkvForCausalLM", {"attention_hidden_size": 48}, "attention interface|max_position"),
    "encoder": ("BertLMHeadModel", {}, "neither causal nor a sliding window"),
    "encoder and decoder": ("BartForCausalLM", {}, "its 2 layers attend 12 times|encoders"),
    "positions of the batch": (
        "ApertusForCausalLM",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}},
        "depends on the whole batch",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_pages_cannot_serve_is_refused_by_name_with_the_reason_and_the_nearest_architecture(name: str) -> None:
    import transformers

    architecture, settings, reason = _REFUSED[name]
    sizes = {"vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, architecture).config_class(**{**sizes, **settings}).to_json_string()
    reader = ConfigReader({**json.loads(config), "architectures": [architecture]})
    message = rf"no code for architecture '{architecture}', .*({reason}).*; the nearest architecture with code is \w+$"
    with pytest.raises(CheckpointError, match=message):
        architecture_of(reader).build(reader, ShapesOnly())


def test_code_of_a_checkpoint_and_quantised_weights_are_refused() -> None:
    for extra, reason in (
        ({"model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own"}}, "has no model_type 'own'"),
        ({"model_type": "apertus", "quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    ):
        reader = ConfigReader({"architectures": ["ApertusForCausalLM"], **extra})
        with pytest.raises(CheckpointError, match=reason):
            architecture_of(reader).build(reader, ShapesOnly())


def test_a_tensor_that_is_missing_left_over_or_of_another_shape_is_refused(saved: Saved, tmp_path: Path) -> None:
    folder = saved("apertus").folder
    tensors = load_file(folder / "model.safetensors")
    norm = "model.norm.weight"
    without = {name: tensor for name, tensor in tensors.items() if name != norm}
    for changed, reason in (
        (without, r"the config describes \d+ parameters, the checkpoint holds"),
        ({**without, "model.other.weight": torch.ones(48)}, r"has no tensor model\.norm\.weight"),
        ({**tensors, "model.other.weight": torch.ones(48)}, r"does not use: model\.other\.weight"),
        ({**tensors, norm: torch.ones(49)}, r"tensor model\.norm\.weight has shape \[49\]"),
        ({**tensors, norm: torch.full((48,), torch.nan)}, r"holds NaN"),
    ):
        copytree(folder, tmp_path, dirs_exist_ok=True)
        save_file(changed, tmp_path / "model.safetensors", {"format": "pt"})
        with pytest.raises(CheckpointError, match=reason):
            load_runner(EngineConfig(str(tmp_path), kv_cache_bytes=1 << 20, num_threads=1))


def test_a_model_whose_results_differ_on_pages_is_refused(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its code took positions from another place."""

    def misplaced(model: Any, num_layers: int, max_positions: int) -> Any:
        layers = examine(model, num_layers, max_positions)
        return [replace(each, shape=replace(each.shape, score_scale=2 * each.shape.scale)) for each in layers]

    monkeypatch.setattr("engine.models.through_transformers.model.examine", misplaced)
    with pytest.raises(CheckpointError, match="logits differ from those of transformers' own attention"):
        load_runner(EngineConfig(str(saved("apertus").folder), kv_cache_bytes=1 << 20, num_threads=1))


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.models.registry.is_installed", lambda: False)
    with pytest.raises(
        CheckpointError, match=r"no code for .*Apertus.*pip install 'agon\[transformers\]'.*docs/models.md"
    ):
        architecture_of(ConfigReader({"architectures": ["ApertusForCausalLM"]}))


def test_models_with_code_of_their_own_are_served_without_importing_what_takes_memory(tiny_model: TinyModels) -> None:
    """Beside transformers, what torch imports when it compiles or is distributed over processes: each takes tens of
    MiB in a process that serves many small models."""
    heavy = ("transformers", "torch._dynamo", "torch._inductor", "torch.distributed.tensor", "torchvision", "sympy")
    more = ("scipy", "pandas", "matplotlib", "triton", "huggingface_hub.hf_api", "httpx", "pydantic")
    program = (
        "import asyncio, sys\n"
        "from engine.config import EngineConfig\n"
        "from engine.hosting import EngineHost\n"
        "from engine.sampling_params import SamplingParams\n"
        "async def serve():\n"
        "    async with EngineHost(pool_bytes=1 << 20, num_threads=1) as host:\n"
        f"        engine = await host.add('m', EngineConfig({str(tiny_model('llama').folder)!r}))\n"
        "        async for _ in engine.generate([5, 6], SamplingParams(temperature=0.5, max_tokens=3)):\n"
        "            pass\n"
        "asyncio.run(serve())\n"
        f"found = [name for name in {heavy + more!r} if name in sys.modules]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["nemotron", "vaultgemma", "dots1"])
def test_they_run_in_every_data_type_near_the_exact_logits(saved: Saved, name: str) -> None:
    tiny, prompt = saved(name), random_prompt(9, 30)
    exact = tiny.logits(prompt)
    for operators in (TorchOperators(), choose_operators(CPU, torch.bfloat16, 1, allow_compiled=True)):
        with torch.inference_mode():
            logits = chunked_logits(
                tiny.folder, prompt, page_tokens=16, chunk=20, operators=operators, dtype=torch.bfloat16
            )
        assert float((logits.float() - exact).norm() / exact.norm()) < 0.1
    config = EngineConfig(str(tiny.folder), kv_cache_bytes=1 << 20, max_running=4, num_threads=1)
    for rounded in (replace(config, weights="int8"), replace(config, kv_dtype="int8")):
        assert len(generate(load_runner(rounded).runner, MIXED_LENGTHS[:2], 4, chunk=16)[0]) == 4
