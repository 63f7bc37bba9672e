"""A smaller model over the same pool proposes tokens: no token changes, and all pages are accounted for."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from engine.batch import SampledToken, ScheduledSequence
from engine.config import EngineConfig, ModelLimits
from engine.core import EngineCore
from engine.drafts.draft_model import DraftModel
from engine.drafts.payoff import Payoff
from engine.drafts.speculation import Speculation
from engine.errors import CheckpointError
from engine.llm import LLM
from engine.loaded_engine import engine_around
from engine.memory.kv_cache import KVCache
from engine.memory.large_pool import LargePool
from engine.memory.planning.grouping import group_layers, large_page_bytes
from engine.memory.pool_share import PoolShare
from engine.memory.spec import LayerSpec, PoolPlan
from engine.runner.build import Builder, build_device_runner, build_runner
from engine.runner.load import load_runner
from engine.runner.with_draft import load_with_draft
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.fakes import (
    EOS,
    ONE_TYPE,
    VOCAB_SIZE,
    LetterDetokenizer,
    PagedFakeRunner,
    continuation,
    run_all,
)
from tests.engine.runner.device.device_runners import torch_machinery
from tests.engine.small_engines import TinyModels
from tests.engine.stepper import random_prompt
from tests.engine.test_core_at_random import RandomLoad

GREEDY = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, seed=11, max_tokens=40, ignore_eos=True)
LIMITS = ModelLimits(1024, VOCAB_SIZE, frozenset({EOS}))


@pytest.fixture
def verification_always_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_many_as_there_are(self: Speculation, candidates: list, num_rows: int, room: int) -> list[int]:  # type: ignore[type-arg]
        lengths: list[int] = []
        for candidate in candidates:
            lengths.append(min(candidate.max_tokens, room - sum(lengths)))
        return lengths

    monkeypatch.setattr(Speculation, "_lengths", as_many_as_there_are)
    monkeypatch.setattr(Payoff, "is_paused", lambda *arguments: False)
    monkeypatch.setattr(Payoff, "num_closed_steps", lambda *arguments: 0)


@dataclass
class OftenRight(PagedFakeRunner):
    """A smaller model that says something else about every fourth time."""

    def _sample(self, sequence: ScheduledSequence) -> tuple[SampledToken, ...]:
        drawn = super()._sample(sequence)
        return tuple(SampledToken(7) if sampled.token_id % 4 == 0 else sampled for sampled in drawn)


def drafted_core(num_pages: int, *, page_tokens: int = 4, **settings: object) -> tuple[EngineCore, KVCache]:
    """A core whose pages lie in one pool with those of a smaller model; and the smaller one's page cache."""
    config = EngineConfig("fake", page_tokens=page_tokens, **settings)  # type: ignore[arg-type]
    step = config.step_limits
    types = [group_layers(each, page_tokens=page_tokens) for each in (ONE_TYPE, (LayerSpec("full", 48, "float32"),))]
    page_bytes = large_page_bytes([*types[0], *types[1]])
    own, others = (PoolPlan(each, page_bytes, num_pages + 1) for each in types)
    share = PoolShare(LargePool(own.num_large_pages))
    cache = KVCache(others, max_step_tokens=step.max_batched_tokens, share=share)
    draft = DraftModel(
        "small",
        OftenRight(others, step.max_running, LIMITS),
        cache,
        max_running=step.max_running,
        max_step_tokens=step.max_batched_tokens,
        vocab_size=VOCAB_SIZE,
    )
    core = EngineCore(
        PagedFakeRunner(own, step.max_running, LIMITS),
        config,
        lambda skip, shown, prompt: LetterDetokenizer(),
        proposer=draft,
        share=share,
    )
    return core, cache


class DraftedLoad(RandomLoad):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, is_crowded=True)
        self.core, self.cache = drafted_core(
            self.random.choice([20, 40, 60]),
            page_tokens=self.random.choice([1, 2, 4]),
            max_batched_tokens=self.random.choice([5, 16, 64]),
            max_running=self.random.choice([6, 12]),
            enable_prefix_caching=self.random.random() < 0.7,
        )

    def step(self) -> None:
        super().step()
        self.cache.check_integrity()


@pytest.mark.usefixtures("verification_always_pays")
def test_random_loads_bring_their_tokens_and_leave_no_page() -> None:
    accepted = preempted = refused = 0
    for seed in range(16):
        load = DraftedLoad(seed)
        load.run()
        assert load.reasons.keys() == load.expected.keys()
        for key, reason in load.reasons.items():
            wanted = load.expected[key]
            assert load.brought[key] == (wanted[: len(load.brought[key])] if reason == "abort" else wanted)
        assert load.cache.is_unused
        stats = load.core.stats()
        accepted += stats.accepted_draft_tokens_total
        refused += stats.draft_tokens_total - stats.accepted_draft_tokens_total
        preempted += stats.preemptions_total
    assert min(accepted, refused, preempted) > 10


@pytest.mark.usefixtures("verification_always_pays")
def test_a_request_gets_the_pages_that_the_smaller_model_holds() -> None:
    core, cache = drafted_core(16)
    core.add_request("first", [5, 6, 7], replace(GREEDY, max_tokens=100))
    for _ in range(4):
        core.step()
    assert not cache.is_unused
    core.add_request("second", list(range(2, 30)), replace(GREEDY, max_tokens=12))
    outputs = run_all(core)
    assert core.stats().preemptions_total <= 1
    assert outputs["second"][0].token_ids == continuation(list(range(2, 30)), replace(GREEDY, max_tokens=12))


def pair(target: TinyModel, draft: TinyModel, build: Builder = build_runner, /, **settings: object) -> LLM:
    defaults: dict[str, object] = {
        "page_tokens": 4,
        "kv_cache_bytes": 4 << 20,
        "max_running": 24,
        "num_threads": 1,
        "draft_tokens": 4,
        "draft": str(draft.folder),
    }
    config = EngineConfig(str(target.folder), **{**defaults, **settings})  # type: ignore[arg-type]
    loaded = load_with_draft(config, build)
    return LLM.around(engine_around(loaded.target, has_queue_bound=False, draft=loaded.draft))


PROMPTS = [random_prompt(index, length) for index, length in enumerate((1, 4, 30, 61, 9, 17))]
PARAMS = [GREEDY, SAMPLED, replace(SAMPLED, n=2), GREEDY, replace(SAMPLED, repetition_penalty=1.3, seed=2), SAMPLED]


@pytest.mark.usefixtures("verification_always_pays")
@pytest.mark.parametrize(
    ("target", "draft", "build", "settings"),
    [
        ("llama", "llama", build_runner, {}),
        ("llama", "gemma3", build_runner, {"kv_cache_bytes": 300_000, "max_batched_tokens": 32}),
        ("gemma3", "llama", partial(build_device_runner, machinery=torch_machinery()), {"operators": "torch"}),
    ],
    ids=["itself", "windows, little room", "device"],
)
def test_no_result_differs(
    tiny_model: TinyModels, target: str, draft: str, build: Builder, settings: dict[str, object]
) -> None:
    same = {"operators": settings["operators"]} if "operators" in settings else {}
    model = tiny_model(target)
    plain = LLM(str(model.folder), page_tokens=4, kv_cache_bytes=4 << 20, max_running=24, num_threads=1, **same)
    expected = plain.generate(PROMPTS, PARAMS)
    llm = pair(model, tiny_model(draft), build, **settings)
    for _ in range(2):
        for got, wanted in zip(llm.generate(PROMPTS, PARAMS), expected, strict=True):
            assert [o.token_ids for o in got.outputs] == [o.token_ids for o in wanted.outputs]
    llm._core.check_integrity()
    stats = llm.stats()
    assert stats.draft_tokens_total > 50
    if target == draft:  # it does not know of penalties
        assert stats.accepted_draft_tokens_total > 0.7 * stats.draft_tokens_total


def test_the_model_has_the_pages_that_it_has_without_a_draft_model(tiny_model: TinyModels) -> None:
    config = EngineConfig(str(tiny_model("llama").folder), kv_cache_bytes=4 << 20, num_threads=1)
    pair_of_plans = load_with_draft(replace(config, draft=str(tiny_model("gemma3").folder)))
    target, draft = pair_of_plans.target.pool_plan, pair_of_plans.draft.pool_plan
    assert target == load_runner(config).pool_plan
    assert (draft.large_page_bytes, draft.num_large_pages) == (target.large_page_bytes, target.num_large_pages)


def test_other_tokenizers_heads_and_recurrent_layers_are_refused(tiny_model: TinyModels, tmp_path: Path) -> None:
    eagle = tmp_path / "eagle"
    eagle.mkdir()
    (eagle / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    config = EngineConfig(str(tiny_model("llama").folder), draft="demo_models/finch", num_threads=1)
    with pytest.raises(CheckpointError, match=r"has another tokenizer than .*: token 0 is"):
        load_with_draft(config)
    with pytest.raises(CheckpointError, match=r"LlamaForCausalLMEagle3: Eagle heads, .* are not supported"):
        load_with_draft(replace(config, draft=str(eagle)))
    with pytest.raises(CheckpointError, match=r"cannot be used with .*jamba.*: the model has recurrent layers"):
        pair(tiny_model("jamba"), tiny_model("llama"))
