"""A step in flight on real weights: every token, text and log probability is what it is without, also where the runner
computes as late as it may."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.llm import LLM
from engine.llm_outputs import RequestOutput
from engine.loaded_engine import LoadedEngine
from engine.runner import load_runner
from engine.runner.build import Builder, build_device_runner, build_runner
from engine.sampling_params import SamplingParams
from engine.text.sequence_text import Detokenizer
from engine.text.tokenizer import IncrementalDetokenizer
from tests.engine.checkpoints import TinyModel
from tests.engine.late_runner import ForgetfulInFlight, LateRunner
from tests.engine.runner.device.device_runners import torch_machinery
from tests.engine.stepper import random_prompt

TinyModels = Callable[[str], TinyModel]
MODELS = ("llama", "gemma3", "mamba", "jamba")
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, seed=11, max_tokens=24, ignore_eos=True)
PENALISED = replace(SAMPLED, frequency_penalty=0.7)
STOPPING = replace(SAMPLED, stop_token_ids=tuple(range(0, 311, 9)))
PROMPTS = [random_prompt(index, length) for index, length in enumerate((1, 4, 30, 30, 61, 9, 17, 40, 23, 12))]
PARAMS = [
    GREEDY,
    replace(GREEDY, stop_token_ids=tuple(range(0, 311, 7)), min_tokens=3),
    replace(SAMPLED, n=3),
    STOPPING,
    replace(STOPPING, n=2, seed=5, min_tokens=6),
    replace(SAMPLED, logprobs=2, max_tokens=9),
    replace(SAMPLED, stop=("a", "e", "th")),
    replace(GREEDY, max_tokens=1),
    replace(STOPPING, seed=3, repetition_penalty=1.3, presence_penalty=0.6),
    replace(STOPPING, temperature=0.0),
]
#: Short prompts with long answers: they all start, and there is no room for all of them to go on.
CROWD = [
    (random_prompt(index, 3 + 2 * index), replace(params, max_tokens=60, seed=index))
    for index, params in enumerate([GREEDY, STOPPING, PENALISED, replace(SAMPLED, stop=("e",)), GREEDY, STOPPING] * 2)
]
CROWD[5] = CROWD[5][0], replace(SAMPLED, n=2, max_tokens=20)
DEFAULTS = {"page_tokens": 4, "checkpoint_tokens": 8, "kv_cache_bytes": 2 << 20, "max_running": 8, "num_threads": 1}


def in_turn(model: TinyModel, **settings: object) -> LLM:
    return LLM(str(model.folder), **{**DEFAULTS, **settings})


def late(model: TinyModel, build: Builder = build_runner, /, **settings: object) -> LLM:
    """An engine with a step in flight over a LateRunner."""
    config = EngineConfig(str(model.folder), overlap=True, **{**DEFAULTS, **settings})  # type: ignore[arg-type]
    loaded = load_runner(replace(config, max_running=2 * config.step_limits.max_running), build=build)

    def make_detokenizer(skip_special_tokens: bool, shown: tuple[str, ...], prompt: tuple[int, ...]) -> Detokenizer:
        return IncrementalDetokenizer(loaded.tokenizer, skip_special_tokens, prompt)

    runner = LateRunner(loaded.runner, config.step_limits.max_running)
    core = EngineCore(runner, config, make_detokenizer, has_queue_bound=False)
    return LLM.around(LoadedEngine(core, loaded.tokenizer, loaded.info))


def check(result: list[RequestOutput], expected: list[RequestOutput]) -> None:
    for got, wanted in zip(result, expected, strict=True):
        for output, other in zip(got.outputs, wanted.outputs, strict=True):
            assert (output.token_ids, output.text) == (other.token_ids, other.text)
            assert output.finish_reason == other.finish_reason
            assert output.cumulative_logprob == pytest.approx(other.cumulative_logprob, abs=1e-4)


def scarce_bytes(model: TinyModel, crowd: list[tuple[list[int], SamplingParams]]) -> int:
    """A pool in which the largest request of the crowd fits, and little beside it."""
    cache = in_turn(model, max_batched_tokens=16)._core._cache
    needs = [
        cache.rule.large_pages(cache.rule.needs([len(prompt) + params.max_tokens] * params.n, len(prompt)))
        for prompt, params in crowd
    ]
    return int(1.3 * max(needs) + 1) * cache.plan.large_page_bytes


@pytest.mark.parametrize("settings", [{}, {"max_batched_tokens": 7, "enable_prefix_caching": False, "max_running": 5}])
@pytest.mark.parametrize("name", MODELS)
def test_results_do_not_depend_on_what_is_in_flight(
    tiny_model: TinyModels, name: str, settings: dict[str, object]
) -> None:
    expected = in_turn(tiny_model(name)).generate(PROMPTS, PARAMS)
    llm = late(tiny_model(name), **settings)
    for _ in range(2):
        check(llm.generate(PROMPTS, PARAMS), expected)
    llm._core.check_integrity()
    if settings:
        assert llm._core._runner.num_early > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("swap_bytes", [0, 1 << 20], ids=["recomputed", "swapped"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "jamba"])
def test_so_they_do_not_where_requests_are_preempted(tiny_model: TinyModels, name: str, swap_bytes: int) -> None:
    model = tiny_model(name)
    # The states of two samples would need a pool in which everybody finds room.
    crowd = [(prompt, params) for prompt, params in CROWD if params.n == 1 or name != "jamba"]
    prompts, params = [prompt for prompt, _ in crowd], [params for _, params in crowd]
    expected = in_turn(model).generate(prompts, params)
    llm = late(model, kv_cache_bytes=scarce_bytes(model, crowd), max_batched_tokens=16, swap_bytes=swap_bytes)
    check(llm.generate(prompts, params), expected)
    llm._core.check_integrity()
    stats = llm.stats()
    assert stats.preemptions_total > 0
    assert (stats.swap_preemptions_total > 0) == bool(swap_bytes)
    assert llm._core._runner.num_early > 0  # type: ignore[attr-defined]


class RandomLoad:
    """Requests that come, are resumed and are aborted at random, and what each would bring alone."""

    def __init__(self, model: TinyModel, seed: int, build: Builder = build_runner, **settings: object) -> None:
        self.random = random.Random(seed)
        self.crowd = [(prompt, replace(params, n=1)) for prompt, params in CROWD]
        results = in_turn(model).generate([prompt for prompt, _ in self.crowd], [params for _, params in self.crowd])
        self.whole = [result.outputs[0].token_ids for result in results]
        self.core = late(
            model,
            build,
            kv_cache_bytes=scarce_bytes(model, self.crowd),
            max_batched_tokens=16,
            swap_bytes=self.random.choice([0, 1 << 20]),
            **settings,
        )._core
        self.expected: dict[str, list[int]] = {}
        self.brought: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}

    def arrive(self, request_id: str) -> None:
        which = self.random.randrange(len(self.crowd))
        (prompt, params), whole = self.crowd[which], self.whole[which]
        num_done = self.random.choice([0, 0, self.random.randrange(len(whole))])
        self.core.add_request(request_id, prompt, params, resume_token_ids=whole[:num_done])
        self.expected[request_id], self.brought[request_id] = whole[num_done:], []

    def run(self) -> int:
        """Returns how many requests brought something else than they should."""
        num_steps = 0
        while num_steps < 60 or not self.core.is_idle:
            num_steps += 1
            if num_steps < 60 and self.random.random() < 0.6:
                self.arrive(str(num_steps))
            if self.random.random() < 0.1:
                self.core.abort(str(self.random.randrange(60)))
            for delta in self.core.step():
                self.brought[delta.request_id] += delta.token_ids
                if delta.finish_reason is not None:
                    self.reasons[delta.request_id] = delta.finish_reason
            self.core.check_integrity()
        assert self.reasons.keys() == self.expected.keys()
        return sum(
            tokens != self.expected[key][: len(tokens) if self.reasons[key] == "abort" else None]
            for key, tokens in self.brought.items()
        )


@pytest.mark.parametrize(("name", "seed"), [("llama", 0), ("gemma3", 1), ("jamba", 2)])
def test_aborts_change_no_token_of_other_requests(tiny_model: TinyModels, name: str, seed: int) -> None:
    load = RandomLoad(tiny_model(name), seed)
    assert load.run() == 0
    assert set(load.reasons.values()) == {"abort", "stop", "length"}


@pytest.mark.parametrize(("name", "seed"), [("llama", 3), ("jamba", 4)])
def test_so_it_is_with_the_runner_of_devices(tiny_model: TinyModels, name: str, seed: int) -> None:
    build = partial(build_device_runner, machinery=torch_machinery())
    load = RandomLoad(tiny_model(name), seed, build, operators="torch")
    assert load.run() == 0
    assert set(load.reasons.values()) == {"abort", "stop", "length"}


def test_pages_that_are_free_before_a_step_in_flight_has_ended_are_noticed(tiny_model: TinyModels) -> None:
    load = RandomLoad(tiny_model("llama"), 0)
    load.core._in_flight = load.core._scheduler._in_flight = ForgetfulInFlight(load.core._cache, 2)
    assert load.run() > 0
