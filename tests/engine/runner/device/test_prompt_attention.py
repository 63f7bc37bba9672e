"""A library that attends prompts: the same tokens as without it, and only where it is right and faster."""

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from engine.config import PromptAttentionName
from engine.kernels import reference
from engine.kernels.operators import WorkTimer
from engine.kernels.prompt_libraries import PromptCase, find_libraries, open_libraries
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.prompt_attention import PromptAttention, PromptChoice, StepBounds
from tests.engine.checkpoints import save
from tests.engine.runner.device.device_runners import (
    SLOTS,
    device_runner,
    in_random_company,
    llm_on,
    load_device,
    settings_for,
    torch_machinery,
)
from tests.engine.runner.device.fake_prompt_libraries import Faults, install_flash_attention, install_flash_infer
from tests.engine.runner.device.tape import TapeRecorder
from tests.engine.stepper import GREEDY, random_prompt

CPU = torch.device("cpu")
HOPPER = (9, 0)
INSTALL = {"flash-attention": install_flash_attention, "flashinfer": install_flash_infer}
NAMES: tuple[PromptAttentionName, ...] = ("flash-attention", "flashinfer")
CASE = PromptCase(4, 2, 64, 16, torch.bfloat16, torch.bfloat16, 0.125, None, None, has_sinks=False)
Install = Callable[..., Faults]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def installed(name: str, **faults: object) -> Faults:
        library = Faults(**faults)  # type: ignore[arg-type]
        INSTALL[name](monkeypatch, library)
        return library

    return installed


def timer_of(*seconds: tuple[Faults, float]) -> WorkTimer:
    """A device on which our kernel takes a second, and a library what is said of it."""

    def time(work: Callable[[], None]) -> float:
        before = [faults.num_calls for faults, _ in seconds]
        work()
        took = (s for (faults, s), calls in zip(seconds, before, strict=True) if faults.num_calls > calls)
        return next(took, 1.0)

    return time


def choose(
    timer: WorkTimer | None, asked: PromptAttentionName = "auto", *cases: PromptCase, has_other_pages: bool = False
) -> PromptAttention:
    bounds = StepBounds(max_rows=5, max_tokens=48, max_context=600)
    choice = PromptChoice(reference, timer, bounds, CPU, has_other_pages)
    return choice.choose(asked, cases or (CASE,), open_libraries(CPU, HOPPER))


def runner_with(folder: Path, asked: PromptAttentionName, recorder: TapeRecorder | None = None) -> DeviceRunner:
    machinery = torch_machinery(recorder)
    if asked != "triton":
        machinery = replace(machinery, libraries=open_libraries(CPU, HOPPER))
    settings = {"max_running": SLOTS, "dtype": "bfloat16", "prompt_attention": asked}
    return device_runner(folder, machinery, None, **settings)


# Whole models


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_are_the_same_in_steps_of_prompts_and_decodes(
    tmp_path: Path, install: Install, name: PromptAttentionName
) -> None:
    """Gemma 2 has windows and a soft cap."""
    folder = save("gemma2", tmp_path, head_dim=64).folder
    expected = in_random_company(runner_with(folder, "triton"), GREEDY)
    library = install(name)
    recorder = TapeRecorder()
    runner = runner_with(folder, name, recorder)
    assert runner.operators_name == f"torch, prompts by {name}, CUDA graphs"
    library.num_calls = 0
    library.plans.clear()
    assert in_random_company(runner, GREEDY) == expected
    assert library.num_calls > 0
    assert recorder.piece_replays, "attention by a library fits between the pieces of a step"
    for first, second in pairwise(library.plans):
        assert first != second, "the memory of a plan may still be read when the next step is planned"


def test_prompts_behind_a_cached_prefix_continue_in_the_same_way(tmp_path: Path, install: Install) -> None:
    folder = save("llama", tmp_path, head_dim=64).folder
    settings: dict[str, object] = {"dtype": "bfloat16", "max_running": SLOTS}
    prefix = random_prompt(1, 45)
    prompts = [prefix, *([*prefix, *random_prompt(2 + index, 9 + index)] for index in range(3))]
    outputs, num_cached = [], []
    for asked in ("triton", "flashinfer"):
        library = install("flashinfer")
        machinery = replace(torch_machinery(), libraries=open_libraries(CPU, HOPPER))
        chosen = {**settings, "prompt_attention": asked}
        llm = llm_on(load_device(folder, machinery, None, **chosen), settings_for(folder, **chosen))
        results = [llm.generate([prompt], replace(GREEDY, max_tokens=6))[0] for prompt in prompts]
        outputs.append([result.outputs[0].token_ids for result in results])
        num_cached.append([result.num_cached_tokens for result in results])
        assert (library.num_calls > 0) == (asked != "triton")
    assert outputs[0] == outputs[1]
    assert num_cached[0] == num_cached[1]
    assert min(num_cached[0][1:]) > 0


# The choice


@pytest.mark.parametrize("name", NAMES)
def test_the_fastest_is_chosen_and_ours_where_a_library_gains_too_little(install: Install, name: str) -> None:
    library = install(name)
    assert choose(timer_of((library, 0.5))).summary == f"prompts by {name}"
    assert choose(timer_of((library, 0.97))) == PromptAttention()
    assert choose(timer_of((library, 1.5))) == PromptAttention()
    other = install(next(other for other in NAMES if other != name))
    assert choose(timer_of((library, 0.5), (other, 0.8))).summary == f"prompts by {name}"


def test_without_a_timer_a_library_is_used_only_where_it_is_asked_for(install: Install) -> None:
    library = install("flash-attention")
    assert choose(None) == PromptAttention()
    assert choose(None, "flash-attention").summary == "prompts by flash-attention"
    assert choose(timer_of((library, 0.5)), "triton") == PromptAttention()


def test_layers_are_chosen_for_by_kind(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    library = install("flashinfer")
    odd, sinks = replace(CASE, head_dim=96), replace(CASE, has_sinks=True)
    chosen = choose(timer_of((library, 0.5)), "auto", CASE, odd, sinks, CASE)
    assert list(chosen.kernels) == [CASE]
    assert chosen.summary == "prompts by flashinfer for 1 of 3 kinds of layers"
    assert "heads of 96 channels (64, 128, 256 are supported)" in caplog.text
    assert "attention sinks" in caplog.text


@pytest.mark.parametrize("name", NAMES)
def test_latents_are_attended_by_our_kernel(
    install: Install, name: PromptAttentionName, caplog: pytest.LogCaptureFixture
) -> None:
    """Libraries take pages of keys and values; there every head has as many channels as here."""
    caplog.set_level(logging.INFO)
    library = install(name)
    assert choose(timer_of((library, 0.5)), name, replace(CASE, has_latents=True)) == PromptAttention()
    assert "values that are channels of the keys" in caplog.text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("window", [None, 11, 300])
@pytest.mark.parametrize("softcap", [None, 20.0])
def test_a_right_library_passes_whatever_the_pages_around_a_context_hold(
    install: Install, name: PromptAttentionName, window: int | None, softcap: float | None
) -> None:
    install(name)
    case = replace(CASE, window=window, softcap=softcap, page_tokens=5)
    for has_other_pages in (False, True):
        assert case in choose(None, name, case, has_other_pages=has_other_pages).kernels


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("window", "faults"), [(None, {"reads_ahead": True}), (11, {"extra_window": 1}), (300, {"extra_window": -1})]
)
def test_a_wrong_library_is_found_and_refused(
    install: Install, caplog: pytest.LogCaptureFixture, name: PromptAttentionName, window: int | None, faults: object
) -> None:
    install(name, **faults)  # type: ignore[arg-type]
    assert choose(None, name, replace(CASE, window=window)) == PromptAttention()
    assert "its results differ from ours" in caplog.text


def test_values_that_are_no_numbers_matter_only_where_pages_can_hold_them(install: Install) -> None:
    """A library may multiply what a window hides by zero. Where all layers have one data type, that is finite."""
    install("flash-attention", multiplies_hidden_values=True)
    case = replace(CASE, window=11)
    assert case in choose(None, "flash-attention", case).kernels
    assert not choose(None, "flash-attention", case, has_other_pages=True).kernels


@pytest.mark.parametrize("name", NAMES)
def test_a_library_that_fails_does_not_keep_a_model_from_being_served(
    tmp_path: Path, install: Install, caplog: pytest.LogCaptureFixture, name: PromptAttentionName
) -> None:
    install(name, error="no kernel image is available")
    runner = runner_with(save("llama", tmp_path, head_dim=64).folder, name)
    assert "prompts" not in runner.operators_name
    assert "it failed: no kernel image is available" in caplog.text


def test_pages_of_8_and_32_bits_are_ours(install: Install) -> None:
    install("flash-attention")
    for page_dtype in (torch.int8, torch.float8_e4m3fn, torch.float32):
        assert not choose(None, "flash-attention", replace(CASE, page_dtype=page_dtype)).kernels


# What is installed


def test_it_says_what_is_installed_and_which_device_it_serves(install: Install) -> None:
    install("flash-attention")
    assert [(found.name, found.version, found.reason) for found in find_libraries((8, 0))] == [
        ("flash-attention", "of unknown version", "compute capability 8.0 (9.0 is needed)"),
        ("flashinfer", None, "not installed"),
    ]
    assert [library.name for library in open_libraries(CPU, HOPPER)] == ["flash-attention"]
    assert open_libraries(CPU, (8, 0)) == ()


def test_a_library_that_cannot_be_imported_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "flash_attn_interface.py").write_text("raise OSError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_libraries(CPU, HOPPER) == ()
    assert "flash-attention of unknown version cannot be imported: undefined symbol" in caplog.text


def test_a_library_that_was_asked_for_and_is_not_there_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert choose(None, "flashinfer") == PromptAttention()
    assert "flashinfer was asked for and cannot be used" in caplog.text
