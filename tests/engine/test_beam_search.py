"""Beam search on real weights: the hypotheses and scores of transformers, and the same ones under every setting.

Where candidates are almost equally likely, roundings decide. So each prompt is one for which transformers finds the
same hypotheses with noise on its logits, a hundred times as large as the differences between the engines.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import InvalidRequest
from engine.llm import LLM
from engine.request import RequestDelta
from engine.runner import load_runner
from engine.sampling_params import BeamSearch, SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.parallel.threads import on_every_rank
from tests.engine.runner.device.device_runners import NoText, llm_on, load_device, settings_for
from tests.engine.small_engines import TinyModels, load
from tests.engine.stepper import random_prompt

MODELS = ("llama", "gemma3", "gpt2", "jamba")  #: full attention, windows, learned positions, recurrent states
STOPS = tuple(range(3, 310, 23))
NUM_TOKENS = 12
NOISE = 1e-4
NUM_OLDER = 8
SEARCHES = [
    BeamSearch(4),
    BeamSearch(3, 0.0, True),
    BeamSearch(5, 2.0, "never"),
    BeamSearch(2, -1.0, False),
    BeamSearch(8, 0.7, True),
]


@dataclass(frozen=True)
class Case:
    """A prompt, the search that continues it, and what transformers finds."""

    prompt: tuple[int, ...]
    search: BeamSearch
    hypotheses: list[list[int]]
    scores: list[float]

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(
            temperature=0.0,
            max_tokens=NUM_TOKENS,
            n=self.search.width,
            beam=self.search,
            stop_token_ids=STOPS,
            ignore_eos=True,
        )


def transformers_search(
    model: TinyModel, prompt: list[int], search: BeamSearch, noise: float = 0.0, **settings: object
) -> tuple[list[list[int]], list[float]]:
    generator = torch.Generator().manual_seed(len(prompt))

    def shake(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + noise * torch.randn(scores.shape, generator=generator)

    from transformers import LogitsProcessorList

    ids = torch.tensor([prompt])
    output: Any = model.reference.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=list(STOPS),
        num_beams=search.width,
        num_return_sequences=search.width,
        length_penalty=search.length_penalty,
        early_stopping=search.early_stopping,
        return_dict_in_generate=True,
        output_scores=True,
        logits_processor=LogitsProcessorList([shake] if noise else []),
        **settings,
    )
    outputs = [row[len(prompt) :] for row in output.sequences.tolist()]
    return [list(_until_stop(row)) for row in outputs], output.sequences_scores.tolist()


def _until_stop(token_ids: list[int]) -> Iterator[int]:
    for token_id in token_ids:
        yield token_id
        if token_id in STOPS:
            return


@cache
def cases_of(model: TinyModel) -> list[Case]:
    return [_clear_case(model, search, which) for which, search in enumerate(SEARCHES)]


def _clear_case(model: TinyModel, search: BeamSearch, which: int) -> Case:
    for attempt in itertools.count():
        prompt = random_prompt(1000 * which + attempt, (9, 30, 4, 17, 23)[which])
        found, scores = transformers_search(model, prompt, search)
        if transformers_search(model, prompt, search, NOISE)[0] == found:
            return Case(tuple(prompt), search, found, scores)
    raise AssertionError


def check(llm: LLM, cases: list[Case]) -> None:
    results = llm.generate([list(case.prompt) for case in cases], [case.params for case in cases])
    for case, result in zip(cases, results, strict=True):
        assert [output.token_ids for output in result.outputs] == case.hypotheses
        for output, score in zip(result.outputs, case.scores, strict=True):
            assert output.cumulative_logprob is not None
            length = len(output.token_ids)
            assert output.cumulative_logprob / length**case.search.length_penalty == pytest.approx(score, rel=1e-5)
            assert output.finish_reason == ("stop" if output.token_ids[-1] in STOPS else "length")
    llm._core.check_integrity()


@pytest.mark.parametrize("name", MODELS)
def test_hypotheses_and_scores_are_those_of_transformers(tiny_model: TinyModels, name: str) -> None:
    cases = cases_of(tiny_model(name))
    assert any(row[-1] in STOPS for case in cases for row in case.hypotheses)
    llm = load(tiny_model(name).folder, checkpoint_tokens=8, max_running=24)
    check(llm, cases)
    assert llm.stats().page_copies_total > 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_batched_tokens": 5}, id="steps too small for all beams"),
        pytest.param({"page_tokens": 16, "overlap": True, "max_running": 24}, id="steps in flight, large pages"),
        pytest.param({"overlap": True, "max_batched_tokens": 7}, id="small steps in flight"),
    ],
)
def test_so_they_are_under_every_setting(tiny_model: TinyModels, name: str, settings: dict[str, object]) -> None:
    check(load(tiny_model(name).folder, checkpoint_tokens=8, **settings), cases_of(tiny_model(name)))


@pytest.mark.parametrize("swap_bytes", [0, 1 << 22], ids=["recomputed", "swapped"])
@pytest.mark.parametrize("name", ["llama", "jamba"])
def test_so_they_are_when_searches_are_preempted(tiny_model: TinyModels, name: str, swap_bytes: int) -> None:
    """Older requests with long answers take the pages; the largest search fits, and little beside it."""
    model = tiny_model(name)
    cases = cases_of(model)
    core = load(model.folder, checkpoint_tokens=8)._core
    plan, rule = core.pool_plan, core._cache.rule
    largest = max(
        rule.large_pages(rule.needs([len(case.prompt) + NUM_TOKENS] * case.search.width, len(case.prompt)))
        for case in cases
    )
    llm = load(
        model.folder,
        checkpoint_tokens=8,
        kv_cache_bytes=(largest + 1) * plan.large_page_bytes,
        swap_bytes=swap_bytes,
        max_running=64,
    )
    older = SamplingParams(temperature=0.0, max_tokens=110, ignore_eos=True)
    prompts = [[which, 1, 2] for which in range(NUM_OLDER)] + [list(case.prompt) for case in cases]
    results = llm.generate(prompts, [older] * NUM_OLDER + [case.params for case in cases])[NUM_OLDER:]
    assert [[output.token_ids for output in result.outputs] for result in results] == [c.hypotheses for c in cases]
    assert llm.stats().preemptions_total > 0
    assert (llm.stats().swap_preemptions_total > 0) == bool(swap_bytes)
    llm._core.check_integrity()


@pytest.mark.parametrize("name", ["llama", "jamba"])
def test_so_they_are_on_cached_prefixes(tiny_model: TinyModels, name: str) -> None:
    llm = load(tiny_model(name).folder, checkpoint_tokens=8)
    for _ in range(2):
        check(llm, cases_of(tiny_model(name)))
    assert llm.stats().prefix_hit_tokens_total > 0


@pytest.mark.parametrize("name", ["llama", "jamba"])
def test_so_they_are_on_the_runner_of_devices(tiny_model: TinyModels, name: str) -> None:
    folder = tiny_model(name).folder
    config = settings_for(folder, max_running=24, checkpoint_tokens=8)
    loaded = load_device(folder, max_running=24, checkpoint_tokens=8)
    check(llm_on(loaded, config), cases_of(tiny_model(name)))


def test_so_they_are_on_two_ranks(tiny_model: TinyModels) -> None:
    """Each rank searches for itself here, as it samples: both see the joined logits."""
    model = tiny_model("llama")
    cases = cases_of(model)
    config = settings_for(model.folder)

    def work(group: Any) -> None:
        core = EngineCore(load_runner(config, group).runner, config, lambda *_: NoText(), has_queue_bound=False)
        for case in cases:
            core.add_request("search", case.prompt, case.params)
            deltas = [delta for _ in _until_idle(core) for delta in core.step()]
            assert [list(delta.token_ids) for delta in deltas] == case.hypotheses

    on_every_rank(2, work)


def _until_idle(core: EngineCore) -> Iterator[None]:
    while not core.is_idle:
        yield


def test_penalties_biases_and_min_tokens_change_log_probabilities_as_in_transformers(tiny_model: TinyModels) -> None:
    model, search = tiny_model("llama"), BeamSearch(4)
    bias = {40: 2.5, 7: -3.0}
    settings: dict[str, Any] = {
        "repetition_penalty": 1.3,
        "min_new_tokens": 5,
        "sequence_bias": [[[token_id], value] for token_id, value in bias.items()],
        "bad_words_ids": [[11], [52]],
    }
    prompt = random_prompt(77, 20)
    found, scores = transformers_search(model, prompt, search, **settings)
    assert transformers_search(model, prompt, search, NOISE, **settings)[0] == found
    params = replace(
        Case(tuple(prompt), search, [], []).params,
        repetition_penalty=1.3,
        min_tokens=5,
        logit_bias=bias,
        bad_words_ids=((11,), (52,)),
    )
    config = settings_for(model.folder, max_running=24)
    for llm in (load(model.folder), llm_on(load_device(model.folder, max_running=24), config)):
        (result,) = llm.generate([prompt], params)
        assert [output.token_ids for output in result.outputs] == found
        assert [len(output.token_ids) for output in result.outputs if output.finish_reason == "stop"] != []
        assert [
            (output.cumulative_logprob or 0.0) / len(output.token_ids) for output in result.outputs
        ] == pytest.approx(scores, rel=1e-5)


def test_log_probabilities_of_hypotheses_add_up(tiny_model: TinyModels) -> None:
    case = cases_of(tiny_model("llama"))[0]
    (result,) = load(tiny_model("llama").folder).generate([list(case.prompt)], replace(case.params, logprobs=2, n=2))
    assert [output.token_ids for output in result.outputs] == case.hypotheses[:2]
    for output in result.outputs:
        assert output.logprobs is not None
        chosen = [entry[token_id] for entry, token_id in zip(output.logprobs, output.token_ids, strict=True)]
        assert sum(entry.logprob for entry in chosen) == pytest.approx(output.cumulative_logprob)
        assert all(2 <= len(entry) <= 3 for entry in output.logprobs)


async def test_an_aborted_search_ends_each_of_its_answers(tiny_model: TinyModels) -> None:
    config = EngineConfig(str(tiny_model("llama").folder), page_tokens=4, kv_cache_bytes=2 << 20, num_threads=1)
    engine = await AsyncEngine.from_config(config)
    params = SamplingParams(temperature=0.0, max_tokens=200, n=2, beam=BeamSearch(4), ignore_eos=True)
    stream = engine.generate([1, 2, 3], params)
    engine.abort(stream.request_id)
    deltas: list[RequestDelta] = [delta async for delta in stream]
    assert [(delta.index, delta.finish_reason) for delta in deltas] == [(0, "abort"), (1, "abort")]
    await engine.shutdown()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"n": 5}, "n"),
        ({"stop": ("a",)}, "stop"),
        ({"temperature": 0.5}, "temperature"),
        ({"top_p": 0.5}, "temperature"),
        ({"best_of": 4}, "best_of"),
    ],
)
def test_what_has_no_meaning_in_a_search_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(SamplingParams(temperature=0.0, beam=BeamSearch(4)), **changes)
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"allowed_token_ids": (1, 2, 3)}, "allowed_token_ids"),
        ({"allowed_token_ids": (1, 2, 3, 999)}, "allowed_token_ids"),
        ({"stop_token_ids": tuple(range(308))}, "beam.width"),
        ({"beam": BeamSearch(9)}, "beam.width"),
    ],
)
def test_a_search_that_can_run_out_of_beams_is_refused(
    tiny_model: TinyModels, changes: dict[str, Any], field: str
) -> None:
    llm = load(tiny_model("llama").folder)
    with pytest.raises(InvalidRequest) as caught:
        llm.generate([[1]], replace(SamplingParams(temperature=0.0, beam=BeamSearch(4)), **changes))
    assert caught.value.param == field
