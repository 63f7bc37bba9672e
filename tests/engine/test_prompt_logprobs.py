"""Log probabilities of prompts: those of transformers, and the same to the bit under every setting."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.errors import ContextTooLong, InvalidRequest
from engine.llm import LLM
from engine.request import RequestDelta, TokenLogprob
from engine.sampling.prompt_rows import ROWS_AT_ONCE
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.runner.device.device_runners import llm_on, load_device, settings_for
from tests.engine.small_engines import GREEDY, PAGE_BYTES, TinyModels, load
from tests.engine.stepper import random_prompt

SCORES = SamplingParams(max_tokens=0, prompt_logprobs=3)
PROMPTS = [random_prompt(index, length) for index, length in enumerate((1, 2, 9, 30, 61, 30, 33))]
Scores = tuple[TokenLogprob | None, ...]


def deltas_of(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> list[list[RequestDelta]]:
    """All deltas of each prompt. The engine must account for its pages afterwards."""
    core = llm._core
    gathered: dict[str, list[RequestDelta]] = {str(index): [] for index in range(len(prompts))}
    for request_id, prompt in zip(gathered, prompts, strict=True):
        core.add_request(request_id, prompt, params)
    while not core.is_idle:
        for delta in core.step():
            gathered[delta.request_id].append(delta)
    core.check_integrity()
    return list(gathered.values())


def scores_of(llm: LLM, prompts: list[list[int]] = PROMPTS, params: SamplingParams = SCORES) -> list[Scores]:
    scores = []
    for deltas in deltas_of(llm, prompts, params):
        assert all(delta.prompt_logprobs is None for delta in deltas[1:])
        assert deltas[0].prompt_logprobs is not None
        scores.append(deltas[0].prompt_logprobs)
    return scores


def check_against_transformers(model: TinyModel, prompt: list[int], scores: Scores) -> None:
    expected = model.logits(prompt).log_softmax(dim=-1)
    assert len(scores) == len(prompt)
    assert scores[0] is None
    for position, entry in enumerate(scores[1:], start=1):
        assert entry is not None
        row = expected[position - 1]
        assert entry.token_id == prompt[position]
        assert abs(entry.logprob - row[entry.token_id].item()) < 1e-4
        ids, values = zip(*entry.top, strict=True)
        assert torch.allclose(torch.tensor(values), row.topk(3).values, atol=1e-4)
        assert torch.allclose(torch.tensor(values), row[list(ids)], atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma2", "jamba", "qwen3.5", "mixtral"])
def test_they_are_those_of_transformers(tiny_model: TinyModels, name: str) -> None:
    model = tiny_model(name)
    llm = load(model.folder, max_batched_tokens=24)
    for prompt, scores in zip(PROMPTS[2:5], scores_of(llm, PROMPTS[2:5]), strict=True):
        check_against_transformers(model, prompt, scores)


def test_a_prompt_of_many_blocks_of_rows_is_scored_whole(tiny_model: TinyModels) -> None:
    prompt = random_prompt(3, 2 * ROWS_AT_ONCE + 9)
    model = tiny_model("llama")
    (scores,) = scores_of(load(model.folder), [prompt])
    check_against_transformers(model, prompt, scores)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_batched_tokens": 1}, id="one token a step"),
        pytest.param({"max_batched_tokens": 7, "overlap": True}, id="small chunks, one step in flight"),
        pytest.param({"page_tokens": 32, "enable_prefix_caching": False}, id="large pages"),
        pytest.param({"kv_cache_bytes": 24 * PAGE_BYTES, "max_batched_tokens": 9}, id="a pool that preempts"),
        pytest.param({"kv_cache_bytes": 24 * PAGE_BYTES, "swap_bytes": 1 << 20}, id="a pool that swaps"),
    ],
)
@pytest.mark.parametrize("max_tokens", [0, 16])
def test_they_have_the_same_bits_under_every_setting(
    tiny_model: TinyModels, settings: dict[str, object], max_tokens: int
) -> None:
    folder = tiny_model("llama").folder
    expected = scores_of(load(folder, max_running=1))
    llm = load(folder, **settings)
    assert scores_of(llm, params=replace(GREEDY, max_tokens=max_tokens, prompt_logprobs=3)) == expected
    if "kv_cache_bytes" in settings and max_tokens:
        assert llm.stats().preemptions_total > 0


@pytest.mark.parametrize("name", ["jamba", "gemma3"])
def test_cached_prefixes_do_not_hide_rows_and_are_filled(tiny_model: TinyModels, name: str) -> None:
    llm = load(tiny_model(name).folder, checkpoint_tokens=8)
    first = scores_of(llm, [PROMPTS[4]])
    assert scores_of(llm, [PROMPTS[4]]) == first
    (result,) = llm.generate([PROMPTS[4]], GREEDY)
    assert result.num_cached_tokens > 0


def test_all_samples_come_after_the_prompts_own(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    expected = llm.generate([PROMPTS[3]], replace(GREEDY, n=3, temperature=1.0, seed=5))
    (deltas,) = deltas_of(llm, [PROMPTS[3]], replace(GREEDY, n=3, temperature=1.0, seed=5, prompt_logprobs=0))
    told = [delta.index for delta in deltas if delta.prompt_logprobs is not None]
    assert told == [0]
    for output in expected[0].outputs:
        token_ids = [t for delta in deltas if delta.index == output.index for t in delta.token_ids]
        assert token_ids == output.token_ids
    (none_wanted,) = deltas_of(llm, [PROMPTS[3]], replace(SCORES, n=3))
    assert [(d.index, d.token_ids, d.finish_reason) for d in none_wanted] == [(i, (), "length") for i in range(3)]


def test_a_request_without_output_may_fill_the_context(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama").folder
    for settings in ({"max_model_len": 30}, {"kv_cache_bytes": 9 * PAGE_BYTES}):
        llm = load(folder, **settings)
        prompt = random_prompt(1, llm.limits.max_model_len)
        (scores,) = scores_of(llm, [prompt])
        assert len(scores) == len(prompt)
        with pytest.raises(ContextTooLong):
            llm.generate([[*prompt, 1]], SCORES)
        with pytest.raises(ContextTooLong):
            llm.generate([prompt], replace(SCORES, max_tokens=1))


@pytest.mark.parametrize("count", [-1, 21])
def test_the_number_of_likeliest_tokens_has_bounds(count: int) -> None:
    with pytest.raises(InvalidRequest, match="prompt_logprobs must be between 0 and 20"):
        SamplingParams(prompt_logprobs=count)


@pytest.mark.parametrize("name", ["llama", "jamba"])
def test_the_device_runner_gives_the_same(tiny_model: TinyModels, name: str) -> None:
    folder = tiny_model(name).folder
    expected = scores_of(load(folder, operators="torch"))
    for settings in ({"max_batched_tokens": 64}, {"max_batched_tokens": 8, "max_running": 5}):
        found = scores_of(load_on_device(folder, **settings))
        for one, other in zip(found, expected, strict=True):
            for entry, wanted in zip(one[1:], other[1:], strict=True):
                assert entry is not None
                assert wanted is not None
                assert entry.token_id == wanted.token_id
                assert abs(entry.logprob - wanted.logprob) < 1e-5
                assert [token_id for token_id, _ in entry.top] == [token_id for token_id, _ in wanted.top]


def load_on_device(folder: Path, **settings: object) -> LLM:
    return llm_on(load_device(folder, **settings), settings_for(folder, **settings))


async def test_a_resumed_request_does_not_get_them_again(tiny_model: TinyModels) -> None:
    config = EngineConfig(str(tiny_model("llama").folder), page_tokens=4, kv_cache_bytes=2 << 20, num_threads=1)
    engine = await AsyncEngine.from_config(config)
    params = replace(GREEDY, prompt_logprobs=1)
    deltas = [delta async for delta in engine.generate(PROMPTS[3], params)]
    assert deltas[0].prompt_logprobs is not None
    rest = [d async for d in engine.generate(PROMPTS[3], params, resume_token_ids=deltas[0].token_ids)]
    assert all(delta.prompt_logprobs is None for delta in rest)
    await engine.shutdown()
