"""The runner of devices over Triton's kernels: on a CUDA device with its graphs where there is one, else in Triton's
interpreter, where a tape takes each kernel as one call."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.kernels.prompt_libraries import PromptCase, open_libraries
from engine.runner import EagerRunner, load_runner
from engine.runner.device import buckets, prompt_graphs
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.prompt_attention import PromptChoice, StepBounds
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import save
from tests.engine.runner.device.device_runners import device_runner, llm_on, settings_for
from tests.engine.runner.device.fake_prompt_libraries import Faults, install_flash_infer
from tests.engine.stepper import Running, Stepper, generate, random_prompt

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)

from engine.kernels import gpu
from engine.kernels.gpu import attention_tiles, paged_attention
from engine.kernels.operators import WorkTimer
from tests.engine.runner.device.interpreted import Later, small, triton_runner

HAS_CUDA = torch.cuda.is_available()
PROMPTS = [random_prompt(index, length) for index, length in enumerate((9, 1))]
RANDOM = SamplingParams(temperature=1.2, top_k=40, top_p=0.9)
NUM_TOKENS = 4
#: Kinds of kernels whose steps are warmed up here; every other kind of model has kernels of these.
WARM = ("qwen3", "mamba", "gpt-oss", "qwen3.5")


def long(*names: str) -> list[Any]:
    """Variants whose kernels other tests run too: gpt-oss in MXFP4 is one of test_quantised_on_triton.py."""
    return [pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.fixture(autouse=True)
def _as_on_a_device() -> Iterator[None]:
    """NumPy warns where a device just wraps around."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.first_minutes(9)
@pytest.mark.parametrize(
    "name",
    ["qwen3", "mamba", "qwen2-moe", "deepseek-v2", *long("gemma2", "qwen3.5", "gpt2", "gpt-oss", "kimi-linear")],
)
def test_greedy_tokens_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    model = small(name, tmp_path)
    runner = triton_runner(model.folder, warms_up=name in WARM)
    if not HAS_CUDA:
        assert runner.operators_name == "triton, CUDA graphs"
    # The second prompt decodes beside the first one's chunks, then in a graph of its own, then in one of two rows.
    wanted = [model.greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    assert generate(runner, PROMPTS, NUM_TOKENS, chunk=4) == wanted


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("name", ["qwen3.5", "mamba2"])
def test_so_are_those_behind_prompts_that_recurrences_take_in_chunks(tmp_path: Path, name: str) -> None:
    """A chunk and a half of the kernels' in one step; the rest, token by token, beside the second prompt."""
    model = small(name, tmp_path)
    prompts = [random_prompt(5, 55), random_prompt(6, 3)]
    wanted = [model.greedy(prompt, 2) for prompt in prompts]
    runner = triton_runner(model.folder, max_batched_tokens=56, max_model_len=64)
    assert generate(runner, prompts, 2, chunk=50) == wanted


@pytest.mark.skipif(HAS_CUDA, reason="the library is one of tests, on CPU")
@pytest.mark.parametrize("faults", [Faults(), Faults(extra_window=1)], ids=["right", "wrong"])
def test_a_library_of_prompt_attention_is_compared_with_our_kernel(
    monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    install_flash_infer(monkeypatch, faults)
    case = PromptCase(4, 2, 64, 16, torch.bfloat16, torch.bfloat16, 0.125, 11, 20.0, has_sinks=False)
    device = torch.device("cpu")
    bounds = StepBounds(max_rows=3, max_tokens=24, max_context=40)
    choice = PromptChoice(gpu, None, bounds, device, has_other_pages=True)
    chosen = choice.choose("flashinfer", [case], open_libraries(device, (9, 0)))
    assert bool(chosen.kernels) == (faults.extra_window == 0)


@pytest.mark.skipif(HAS_CUDA, reason="on a device products are chosen by measurement")
@pytest.mark.parametrize(
    ("name", "is_eager"),
    [
        ("qwen3", False),
        pytest.param("qwen3", True, marks=pytest.mark.long),
        *(pytest.param(name, False, marks=pytest.mark.long) for name in ("gemma2", "gpt2", "gpt-neox")),
    ],
)
def test_so_they_are_with_products_of_our_own_and_their_neighbours_in_them(
    tmp_path: Path, name: str, is_eager: bool
) -> None:
    model = small(name, tmp_path)
    runner = triton_runner(model.folder, timer=Later(), enforce_eager=is_eager)
    assert runner.operators_name.startswith("triton, own products for ")
    wanted = [model.greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    assert generate(runner, PROMPTS, NUM_TOKENS, chunk=4) == wanted


@pytest.mark.skipif(HAS_CUDA, reason="on a device products are chosen by measurement")
@pytest.mark.parametrize(
    ("num_rows", "settings"),
    [
        (24, {}),
        *(
            pytest.param(num_rows, settings, marks=pytest.mark.long)
            for num_rows, settings in ((40, {}), (24, {"enforce_eager": True}), (24, {"weights": "int8"}))
        ),
    ],
)
def test_so_they_are_in_steps_of_17_to_64_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int, settings: dict[str, Any]
) -> None:
    """All rows decode in one step, whose products are tiles of 32 or 64 rows. Other sizes are not recorded: that takes
    the interpreter minutes."""
    monkeypatch.setattr(buckets, "row_counts", lambda *_: (num_rows,))
    monkeypatch.setattr(prompt_graphs, "token_counts", lambda _: ())
    model = small("qwen3", tmp_path)
    prompts = [random_prompt(number, 1) for number in range(num_rows)]
    limits: dict[str, Any] = {"max_running": num_rows, "max_batched_tokens": num_rows, "max_model_len": 8}
    runner = triton_runner(model.folder, timer=Later(), **limits, **settings)
    assert "products for" in runner.operators_name
    wanted = generate(load_runner(settings_for(model.folder, **limits, **settings)).runner, prompts, 2, chunk=1)
    assert generate(runner, prompts, 2, chunk=1) == wanted


@pytest.mark.first_minutes
def test_so_they_are_over_pages_of_8_bits(tmp_path: Path) -> None:
    folder = small("qwen3", tmp_path).folder
    wanted = generate(load_runner(settings_for(folder, kv_dtype="int8")).runner, PROMPTS, 2, chunk=4)
    assert generate(triton_runner(folder, kv_dtype="int8"), PROMPTS, 2, chunk=4) == wanted


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Contexts are cut into parts of 32 tokens. Yields, for each attention of prompts, how many parts it may have."""
    most: list[int] = []
    prompt_parts = attention_tiles.prompt_parts

    def noted(*numbers: Any) -> int:
        most.append(prompt_parts(*numbers))
        return most[-1]

    monkeypatch.setattr(attention_tiles, "_PART_TOKENS", 32)
    monkeypatch.setattr(paged_attention, "prompt_parts", noted)
    attention_tiles.tiles_for.cache_clear()
    yield most
    attention_tiles.tiles_for.cache_clear()


@pytest.mark.first_minutes
def test_chunks_behind_a_context_and_decodes_give_the_same_tokens_in_parts(
    tmp_path: Path, small_parts: list[int]
) -> None:
    """As transformers, the eager runner, and plain torch give them. In the same steps a second sequence decodes."""
    model = small("qwen3", tmp_path)
    prompts = [random_prompt(3, 74), random_prompt(4, 5)]
    settings: dict[str, Any] = {"max_running": 2, "max_batched_tokens": 32, "max_model_len": 80}
    wanted = [model.greedy(prompt, 2) for prompt in prompts]
    assert generate(triton_runner(model.folder, **settings), prompts, 2, chunk=24) == wanted
    assert max(small_parts) > 1, "the two tokens behind the first 72"
    assert min(small_parts) == 1, "the first chunks"
    for runner in (
        device_runner(model.folder, **settings),
        device_runner(model.folder, enforce_eager=True, **settings),
        load_runner(settings_for(model.folder)).runner,
    ):
        assert generate(runner, prompts, 2, chunk=24) == wanted


@pytest.mark.first_minutes
@pytest.mark.parametrize("timer", [None, Later()], ids=["cublas", "own products"])
def test_random_tokens_are_those_of_engine_sampling(tmp_path: Path, timer: WorkTimer | None) -> None:
    folder = small("llama", tmp_path).folder
    wanted = generate(load_runner(settings_for(folder)).runner, PROMPTS, NUM_TOKENS, chunk=8, params=RANDOM)
    assert generate(triton_runner(folder, timer=timer), PROMPTS, NUM_TOKENS, chunk=8, params=RANDOM) == wanted


@pytest.mark.first_minutes
def test_penalties_and_log_probabilities_are_those_of_engine_sampling(tmp_path: Path) -> None:
    folder = small("llama", tmp_path).folder
    params = replace(
        RANDOM, repetition_penalty=1.5, frequency_penalty=0.7, logit_bias={3: 2.0}, min_tokens=2, logprobs=3
    )

    def continued(runner: EagerRunner | DeviceRunner) -> list[Running]:
        stepper = Stepper(runner, chunk=8)
        running = [Running(slot, prompt, params, seed=slot) for slot, prompt in enumerate(PROMPTS)]
        for _ in range(NUM_TOKENS):
            stepper.step(running)
        return running

    eager = load_runner(settings_for(folder)).runner
    assert isinstance(eager, EagerRunner)
    for ours, wanted in zip(continued(triton_runner(folder)), continued(eager), strict=True):
        assert ours.output == wanted.output
        assert [t.logprob for t in ours.drawn] == pytest.approx([t.logprob for t in wanted.drawn], abs=1e-4)
        assert [[i for i, _ in t.top_logprobs] for t in ours.drawn] == [
            [i for i, _ in t.top_logprobs] for t in wanted.drawn
        ]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize("settings", [{}, {"enforce_eager": True}, {"overlap": False}, {"kv_cache_bytes": 200 * 768}])
def test_a_cuda_device_gives_the_tokens_of_transformers_under_every_setting(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    model = save("llama", tmp_path)
    changes = {"kv_cache_bytes": None, "max_running": 17, "max_batched_tokens": 64, "max_model_len": 128, **settings}
    loaded_settings = {"device": "cuda", "dtype": "float32", "operators": "auto", **changes}
    config = settings_for(model.folder, **loaded_settings)
    llm = llm_on(load_runner(config), config)
    prompts = [random_prompt(index, 1 + 3 * index) for index in range(20)]
    results = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True))
    for prompt, result in zip(prompts, results, strict=True):
        assert result.outputs[0].token_ids == model.greedy(prompt, 16)
