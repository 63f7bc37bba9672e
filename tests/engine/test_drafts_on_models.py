"""Proposed tokens on real weights: every token, text and log probability is what it is without, with every option of a
request, on the eager runner and on that of devices."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from engine.config import EngineConfig
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.vocabulary import Vocabulary
from engine.core import EngineCore
from engine.drafts.ngram import NgramProposer
from engine.drafts.payoff import Payoff
from engine.drafts.proposer import Proposal, Proposer, Wanted
from engine.drafts.speculation import Speculation
from engine.llm import LLM
from engine.llm_outputs import RequestOutput
from engine.loaded_engine import LoadedEngine, load_engine
from engine.runner import LoadedModel, load_runner
from engine.runner.build import Builder, build_device_runner, build_runner
from engine.sampling_params import Constraint, SamplingParams
from engine.text.sequence_text import Detokenizer
from engine.text.tokenizer import IncrementalDetokenizer
from tests.engine.checkpoints import TinyModel
from tests.engine.runner.device.device_runners import torch_machinery
from tests.engine.stepper import random_prompt

TinyModels = Callable[[str], TinyModel]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, seed=11, max_tokens=24, ignore_eos=True)
PROMPTS = [random_prompt(index, length) for index, length in enumerate((1, 4, 30, 30, 61, 9, 17, 40, 23, 12, 8, 15))]
PARAMS = [
    GREEDY,
    replace(GREEDY, stop_token_ids=tuple(range(0, 311, 7)), min_tokens=3),
    replace(SAMPLED, n=3),
    replace(SAMPLED, stop_token_ids=tuple(range(0, 311, 9))),
    replace(SAMPLED, seed=5, min_tokens=6, typical_p=0.8),
    replace(SAMPLED, logprobs=2, max_tokens=9),
    replace(SAMPLED, stop=("a", "e", "th")),
    replace(GREEDY, frequency_penalty=0.7, logprobs=1),
    replace(SAMPLED, seed=3, repetition_penalty=1.3, presence_penalty=0.6),
    replace(GREEDY, logit_bias={5: 4.0, 7: 4.0}, repetition_penalty=1.5),
    replace(GREEDY, temperature=0.0, bad_words_ids=((3, 4), (9,))),
    replace(GREEDY, allowed_token_ids=tuple(range(40, 60))),
]
DEFAULTS: dict[str, object] = {
    "page_tokens": 4,
    "kv_cache_bytes": 2 << 20,
    "max_running": 24,
    "num_threads": 1,
    "draft_tokens": 5,
}


class Remembered:
    """Proposes what an engine without proposals has said, with errors at random."""

    name = "remembered"
    num_sources = 1
    max_rows = None
    is_free = True

    def __init__(self, texts: Sequence[Sequence[int]], seed: int = 0) -> None:
        """texts: prompts with their answers."""
        self._texts = [list(text) for text in texts]
        self._random = random.Random(seed)

    def propose(self, wanted: Sequence[Wanted]) -> list[Proposal | None]:
        return [self._propose(each) for each in wanted]

    def seconds_per_token(self) -> float:
        return 0.0

    def free_pages(self) -> bool:
        return False

    def forget(self, sequence_id: int) -> None:
        pass

    def close(self) -> None:
        pass

    def _propose(self, wanted: Wanted) -> Proposal | None:
        tokens = wanted.sequence.token_ids
        for text in self._texts:
            if len(text) > len(tokens) and text[: len(tokens)] == tokens:
                drafts = [t if self._random.random() < 0.85 else 17 for t in text[len(tokens) :][: wanted.max_tokens]]
                return Proposal(tuple(drafts), 0)
        return Proposal((1, 2), 0)


@pytest.fixture(autouse=True)
def verification_always_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step costs is measured, and differs from run to run."""

    def as_many_as_there_are(self: Speculation, candidates: Sequence[object], num_rows: int, room: int) -> list[int]:
        lengths: list[int] = []
        for candidate in candidates:
            lengths.append(min(candidate.max_tokens, room - sum(lengths)))  # type: ignore[attr-defined]
        return lengths

    monkeypatch.setattr(Speculation, "_lengths", as_many_as_there_are)
    monkeypatch.setattr(Payoff, "is_paused", lambda *arguments: False)
    monkeypatch.setattr(Payoff, "num_closed_steps", lambda *arguments: 0)


def engine(loaded: LoadedModel, config: EngineConfig, proposer: Proposer | None) -> LLM:
    def make_detokenizer(skip_special_tokens: bool, shown: tuple[str, ...], prompt: tuple[int, ...]) -> Detokenizer:
        return IncrementalDetokenizer(loaded.tokenizer, skip_special_tokens, prompt)

    vocabulary = Vocabulary(loaded.tokenizer, loaded.limits.vocab_size, loaded.limits.eos_token_ids)
    core = EngineCore(
        loaded.runner,
        config,
        make_detokenizer,
        has_queue_bound=False,
        compiler=GrammarCompiler(vocabulary),
        proposer=proposer,
    )
    return LLM.around(LoadedEngine(core, loaded.tokenizer, loaded.info))


def load(model: TinyModel, proposer: Proposer | None, build: Builder = build_runner, /, **settings: object) -> LLM:
    config = EngineConfig(str(model.folder), **{**DEFAULTS, **settings})  # type: ignore[arg-type]
    return engine(load_runner(config, build=build), config, proposer)


def answers(results: list[RequestOutput]) -> list[list[int]]:
    return [[*result.prompt_token_ids, *output.token_ids] for result in results for output in result.outputs]


def check(results: list[RequestOutput], expected: list[RequestOutput]) -> None:
    for got, wanted in zip(results, expected, strict=True):
        for output, other in zip(got.outputs, wanted.outputs, strict=True):
            assert (output.token_ids, output.text) == (other.token_ids, other.text)
            assert output.finish_reason == other.finish_reason
            assert output.cumulative_logprob == pytest.approx(other.cumulative_logprob, abs=1e-4)


ON_DEVICE = partial(build_device_runner, machinery=torch_machinery())


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (build_runner, {}),
        (build_runner, {"max_batched_tokens": 19, "overlap": True}),
        (ON_DEVICE, {"operators": "torch"}),
        (ON_DEVICE, {"operators": "torch", "overlap": False, "max_batched_tokens": 19}),
    ],
    ids=["eager", "eager in flight", "device", "device in turn"],
)
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_no_result_differs(tiny_model: TinyModels, name: str, build: Builder, settings: dict[str, object]) -> None:
    model = tiny_model(name)
    same = {"operators": settings["operators"]} if "operators" in settings else {}
    expected = load(model, None, **same).generate(PROMPTS, PARAMS)
    llm = load(model, Remembered(answers(expected)), build, **settings)
    for _ in range(2):  # the second time prompts are cached
        check(llm.generate(PROMPTS, PARAMS), expected)
    llm._core.check_integrity()
    stats = llm.stats()
    assert stats.accepted_draft_tokens_total > 50
    assert stats.draft_tokens_total > stats.accepted_draft_tokens_total


CONSTRAINED = [
    replace(GREEDY, constraint=Constraint("choice", json.dumps(["abcabcabc", "abcabcx", "zzz"])), max_tokens=20),
    replace(SAMPLED, constraint=Constraint("regex", "(ab|cd){3,8}e"), max_tokens=40),
    replace(SAMPLED, constraint=Constraint("json_object", "{}"), max_tokens=30, seed=4),
    GREEDY,
    replace(SAMPLED, constraint=Constraint("regex", "[a-z]{9}"), repetition_penalty=1.2),
]


@pytest.mark.parametrize("build", [build_runner, ON_DEVICE], ids=["eager", "device"])
def test_no_constrained_result_differs(tiny_model: TinyModels, build: Builder) -> None:
    model, prompts = tiny_model("llama"), PROMPTS[: len(CONSTRAINED)]
    expected = load(model, None, operators="torch").generate(prompts, CONSTRAINED)
    llm = load(model, Remembered(answers(expected)), build, operators="torch")
    check(llm.generate(prompts, CONSTRAINED), expected)
    assert llm.stats().accepted_draft_tokens_total > 10


def test_proposals_from_the_text_itself_are_right_where_it_repeats(tiny_model: TinyModels) -> None:
    model = tiny_model("llama")
    prompts = [[5, 6, 7, 8] * 6, random_prompt(3, 20)]
    expected = load(model, None).generate(prompts, replace(GREEDY, max_tokens=60))
    llm = load(model, NgramProposer())
    check(llm.generate(prompts, replace(GREEDY, max_tokens=60)), expected)
    assert llm.stats().saved_steps_total > 10  # greedy text of random weights runs in circles


def test_sampled_tokens_have_the_distribution_that_they_have_without(tiny_model: TinyModels) -> None:
    """Chi-square of the second and third token over many seeds, with proposals that are right about half the time."""
    model, prompt = tiny_model("llama"), [5, 6, 7, 8, 9]
    params = [SamplingParams(temperature=0.4, top_k=3, seed=s, max_tokens=4, ignore_eos=True) for s in range(600)]
    plain = load(model, None).generate([prompt] * len(params), params)
    common = np.bincount([result.outputs[0].token_ids[1] for result in plain]).argmax()
    other = [replace(each, seed=each.seed + 10_000) for each in params if each.seed is not None]
    proposer = Remembered([[*prompt, result.outputs[0].token_ids[0], int(common), 3, 4] for result in plain[:40]])
    llm = load(model, proposer)
    drafted = []
    for first in range(0, len(other), 8):  # while requests wait, nothing is proposed
        drafted += llm.generate([prompt] * 8, other[first : first + 8])
    stats = llm.stats()
    assert 0 < stats.accepted_draft_tokens_total < stats.draft_tokens_total
    for place in (1, 2):
        counts = [np.bincount([r.outputs[0].token_ids[place] for r in of], minlength=311) for of in (plain, drafted)]
        assert p_of_one_distribution(*counts) > 1e-3


def p_of_one_distribution(one: np.ndarray, other: np.ndarray) -> float:
    """Of the chi-square test for two samples of equal size; rare tokens count together."""
    is_rare = one + other < 20
    pairs = [*zip(one[~is_rare], other[~is_rare], strict=True), (one[is_rare].sum(), other[is_rare].sum())]
    statistic = sum((a - b) ** 2 / (a + b) for a, b in pairs if a + b)
    halves = torch.tensor([(len(pairs) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(*halves))


@pytest.mark.parametrize("name", ["jamba", "mamba"])
def test_models_with_recurrent_layers_refuse_drafts_and_say_so(
    tiny_model: TinyModels, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        loaded = load_engine(EngineConfig(str(tiny_model(name).folder), draft="ngram", num_threads=1))
    assert "draft ngram is not used: the model has recurrent layers" in caplog.text
    assert loaded.core._speculation is None
    loaded.core.close()
