"""Requests of several adapters in one engine: tokens of each are those of its merged model, whatever happens to it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.errors import AdapterError, InvalidRequest
from engine.llm import LLM
from engine.loaded_engine import engine_around
from engine.request import RequestDelta
from engine.runner import load_runner
from engine.runner.build import build_device_runner
from engine.runner.device.device_runner import DeviceRunner
from engine.sampling_params import SamplingParams
from tests.engine.adapters.test_adapters_on_models import Adapted, adapted
from tests.engine.checkpoints import TinyModels
from tests.engine.runner.device.device_runners import settings_for, torch_machinery
from tests.engine.small_engines import GREEDY, SAMPLED, load
from tests.engine.stepper import random_prompt

MODELS = ("llama", "qwen3", "gemma3", "jamba")
#: Prompts that begin alike, for the prefix cache, and others.
SHARED = random_prompt(0, 24)
PROMPTS = [SHARED + random_prompt(1, 5), random_prompt(3, 9), SHARED]
NAMES = ("", "adapter-0", "adapter-1", "adapter-2")


def add_all(llm: LLM, made: Adapted) -> LLM:
    for folder in made.adapters:
        llm.add_adapter(folder.name, folder)
    return llm


def run_together(llm: LLM, asked: Sequence[tuple[str, list[int], SamplingParams]]) -> list[list[int]]:
    """All requests at once; the tokens of each."""
    core = llm._core
    for index, (name, prompt, params) in enumerate(asked):
        core.add_request(str(index), prompt, params, adapter=name)
    tokens: list[list[int]] = [[] for _ in asked]
    while not core.is_idle:
        for delta in core.step():
            tokens[int(delta.request_id)] += delta.token_ids
    core.check_integrity()
    return tokens


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_batched_tokens": 7, "max_running": 3}, id="small chunks"),
        pytest.param({"scarce": True}, id="a pool that preempts"),
        pytest.param({"scarce": True, "swap_bytes": 1 << 20, "overlap": True}, id="a pool that swaps, overlapped"),
        pytest.param({"operators": "torch", "overlap": True}, id="torch, overlapped"),
    ],
)
@pytest.mark.parametrize("name", MODELS)
def test_tokens_of_each_adapter_are_those_of_its_merged_model(
    tiny_model: TinyModels, tmp_path: Path, name: str, settings: dict[str, object]
) -> None:
    made = adapted(tiny_model(name).folder, tmp_path)
    folders = dict(zip(NAMES, [made.model, *made.merged], strict=True))
    params = replace(GREEDY, max_tokens=18)
    asked = [(each, prompt, params) for prompt in PROMPTS for each in NAMES]
    settings = dict(settings)
    if settings.pop("scarce", False):
        settings["kv_cache_bytes"] = {"jamba": 120_000, "gemma3": 90_000}.get(name, 100_000)
    with add_all(load(made.model, max_adapters=3, **settings), made) as llm:
        found = run_together(llm, asked)
        again = run_together(llm, asked)  # from the prefix cache
        if "kv_cache_bytes" in settings and name in ("llama", "qwen3"):  # pools of the others admit few at a time
            assert llm.stats().preemptions_total > 0
    wanted = {}
    for each, folder in folders.items():
        with load(folder, **({"operators": "torch"} if settings.get("operators") else {})) as alone:
            wanted[each] = [result.outputs[0].token_ids for result in alone.generate(PROMPTS, params)]
    expected = [wanted[each][index] for index in range(len(PROMPTS)) for each in NAMES]
    assert found == expected
    assert again == expected
    assert len({tuple(wanted[each][0]) for each in NAMES}) == len(NAMES)


def test_pages_are_shared_within_an_adapter_only(tiny_model: TinyModels, tmp_path: Path) -> None:
    made = adapted(tiny_model("llama").folder, tmp_path)
    with add_all(load(made.model, max_adapters=3), made) as llm:
        for name in (None, *NAMES[1:]):
            (first,) = llm.generate([PROMPTS[0]], GREEDY, adapter=name)
            assert first.num_cached_tokens == 0
        for name in (None, *NAMES[1:]):
            (second,) = llm.generate([PROMPTS[0]], GREEDY, adapter=name)
            assert second.num_cached_tokens > 0


def test_a_name_that_gets_another_folder_does_not_find_the_pages_of_the_former(
    tiny_model: TinyModels, tmp_path: Path
) -> None:
    made = adapted(tiny_model("llama").folder, tmp_path)
    with load(made.model, max_adapters=1) as llm:
        llm.add_adapter("pirate", made.adapters[0])
        (former,) = llm.generate([PROMPTS[0]], GREEDY, adapter="pirate")
        llm.remove_adapter("pirate")
        llm.add_adapter("pirate", made.adapters[1])
        (other,) = llm.generate([PROMPTS[0]], GREEDY, adapter="pirate")
        assert other.num_cached_tokens == 0
        assert other.outputs[0].token_ids != former.outputs[0].token_ids
        llm.remove_adapter("pirate")
        llm.add_adapter("again", made.adapters[0])
        (again,) = llm.generate([PROMPTS[0]], GREEDY, adapter="again")
        assert again.num_cached_tokens > 0  # the same matrices
        assert again.outputs[0].token_ids == former.outputs[0].token_ids


def test_a_replayed_answer_goes_on_with_its_adapter(tiny_model: TinyModels, tmp_path: Path) -> None:
    made = adapted(tiny_model("qwen3").folder, tmp_path)
    with add_all(load(made.model, max_adapters=3), made) as llm:
        (whole,) = run_together(llm, [("adapter-1", PROMPTS[0], SAMPLED)])
        core = llm._core
        core.add_request("0", PROMPTS[0], SAMPLED, resume_token_ids=whole[:5], adapter="adapter-1")
        rest: list[int] = []
        while not core.is_idle:
            for delta in core.step():
                rest += delta.token_ids
        assert whole[:5] + rest == whole


def test_steps_without_adapters_are_those_of_an_engine_without_them(tiny_model: TinyModels, tmp_path: Path) -> None:
    made = adapted(tiny_model("gemma3").folder, tmp_path)
    logprobs = replace(SAMPLED, logprobs=3)
    with load(made.model) as plain:
        wanted = plain.generate(PROMPTS, logprobs)
    with add_all(load(made.model, max_adapters=3), made) as llm:
        found = llm.generate(PROMPTS, logprobs)
        assert [result.outputs[0].cumulative_logprob for result in found] == [
            result.outputs[0].cumulative_logprob for result in wanted
        ]


def test_an_adapter_leaves_when_its_last_request_has_ended(tiny_model: TinyModels, tmp_path: Path) -> None:
    made = adapted(tiny_model("llama").folder, tmp_path)
    with load(made.model, max_adapters=1) as llm:
        llm.add_adapter("first", made.adapters[0])
        core = llm._core
        (expected,) = run_together(llm, [("first", PROMPTS[0], GREEDY)])
        core.add_request("0", PROMPTS[0], GREEDY, adapter="first")
        deltas: list[RequestDelta] = core.step()
        gone: list[bool] = []
        core.adapters.remove("first", lambda: gone.append(True))
        with pytest.raises(InvalidRequest, match="no adapter 'first'"):
            core.add_request("1", PROMPTS[1], GREEDY, adapter="first")
        with pytest.raises(AdapterError, match="still answering"):
            core.adapters.add("first", made.adapters[1])
        with pytest.raises(AdapterError, match="all 1 places"):
            core.adapters.add("second", made.adapters[1])
        while not core.is_idle:
            assert not gone
            deltas += core.step()
        assert gone
        assert [token for delta in deltas for token in delta.token_ids] == expected
        core.adapters.add("second", made.adapters[1])


@pytest.mark.parametrize("name", ["llama", "jamba"])
def test_the_device_runner_computes_adapters(tiny_model: TinyModels, tmp_path: Path, name: str) -> None:
    made = adapted(tiny_model(name).folder, tmp_path)
    asked = [(each, prompt, GREEDY) for prompt in PROMPTS for each in NAMES]
    with add_all(load(made.model, max_adapters=3, operators="torch"), made) as eager:
        wanted = run_together(eager, asked)
    build = partial(build_device_runner, machinery=torch_machinery())
    loaded = load_runner(settings_for(made.model, max_adapters=3), build=build)
    assert isinstance(loaded.runner, DeviceRunner)
    with add_all(LLM.around(engine_around(loaded, has_queue_bound=False)), made) as llm:
        assert run_together(llm, asked) == wanted
