"""Parallel samples, penalties and resumed answers on real weights: the same tokens under every setting."""

from dataclasses import replace

import pytest

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.request import sample_seed
from tests.engine.small_engines import GREEDY, PAGE_BYTES, PROMPTS, SAMPLED, TinyModels, load, tokens_of


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_running": 1, "enable_prefix_caching": False}, id="alone"),
        pytest.param({"max_batched_tokens": 5}, id="small chunks"),
        pytest.param({"overlap": True}, id="a step in flight"),
        pytest.param({"kv_cache_bytes": 24 * PAGE_BYTES}, id="a pool that preempts"),
        pytest.param({"kv_cache_bytes": 24 * PAGE_BYTES, "swap_bytes": 1 << 20}, id="a pool that swaps"),
    ],
)
def test_penalties_see_the_same_tokens_under_every_setting(tiny_model: TinyModels, settings: dict[str, object]) -> None:
    folder = tiny_model("llama").folder
    penalised = replace(SAMPLED, repetition_penalty=1.3, frequency_penalty=0.8, presence_penalty=-0.4, temperature=0.4)
    each = [replace(penalised, seed=index, temperature=0.4 * (index % 2)) for index in range(6)] + [SAMPLED, GREEDY]
    expected = load(folder).generate(PROMPTS, each)
    without = load(folder).generate(PROMPTS, [replace(params, repetition_penalty=1.0) for params in each])
    llm = load(folder, **settings)
    results = llm.generate(PROMPTS, each)
    assert [result.outputs[0].token_ids for result in results] == [r.outputs[0].token_ids for r in expected]
    assert [result.outputs[0].token_ids for result in without] != [r.outputs[0].token_ids for r in expected]
    if "kv_cache_bytes" in settings:
        assert llm.stats().preemptions_total > 0


def test_penalties_go_on_where_an_answer_is_resumed(tiny_model: TinyModels) -> None:
    params = replace(GREEDY, frequency_penalty=0.7, repetition_penalty=1.2, max_tokens=12)
    llm = load(tiny_model("llama").folder)
    (whole,) = tokens_of(llm, [PROMPTS[3]], params)
    core = load(tiny_model("llama").folder)._core
    core.add_request("resumed", PROMPTS[3], params, resume_token_ids=whole[:5])
    rest: list[int] = []
    while not core.is_idle:
        rest += [token_id for delta in core.step() for token_id in delta.token_ids]
    assert rest == whole[5:]


@pytest.mark.parametrize("name", ["gemma3", "jamba"])
def test_so_they_do_where_layers_store_different_things(tiny_model: TinyModels, name: str) -> None:
    llm = load(tiny_model(name).folder, checkpoint_tokens=8)
    (forked,) = llm.generate([PROMPTS[4]], replace(SAMPLED, n=4))
    assert llm.stats().page_copies_total > 0
    single = [
        tokens_of(llm, [PROMPTS[4]], replace(SAMPLED, seed=sample_seed(SAMPLED.seed or 0, index)))[0]
        for index in range(4)
    ]
    assert [output.token_ids for output in forked.outputs] == single


@pytest.mark.parametrize("num_pages", [40, 400])
def test_four_samples_by_fork_equal_four_requests_with_their_seeds(tiny_model: TinyModels, num_pages: int) -> None:
    prompt = PROMPTS[3]
    llm = load(tiny_model("llama").folder, kv_cache_bytes=num_pages * PAGE_BYTES)
    forked, _ = llm.generate([prompt, PROMPTS[4]], replace(SAMPLED, n=4))
    assert llm.stats().page_copies_total >= 3 + 3, "both prompts end inside a page"
    single = [
        tokens_of(llm, [prompt], replace(SAMPLED, seed=sample_seed(SAMPLED.seed or 0, index)))[0] for index in range(4)
    ]
    assert [output.token_ids for output in forked.outputs] == single
    assert len(set(map(tuple, single))) == 4


@pytest.mark.parametrize("swap_bytes", [0, 1 << 20], ids=["recomputed", "swapped"])
def test_four_samples_that_were_preempted_equal_four_that_were_not(tiny_model: TinyModels, swap_bytes: int) -> None:
    params = [replace(SAMPLED, n=4, seed=seed, max_tokens=24) for seed in range(3)]
    prompts = [PROMPTS[3], PROMPTS[7], PROMPTS[5]]
    plenty = load(tiny_model("llama").folder, max_running=12).generate(prompts, params)
    scarce = load(tiny_model("llama").folder, max_running=12, kv_cache_bytes=56 * PAGE_BYTES, swap_bytes=swap_bytes)
    tokens = [[output.token_ids for output in result.outputs] for result in scarce.generate(prompts, params)]
    assert tokens == [[output.token_ids for output in result.outputs] for result in plenty]
    stats = scarce.stats()
    assert stats.preemptions_total > 0
    assert (stats.swap_preemptions_total > 0) == bool(swap_bytes)
    scarce._core.check_integrity()


@pytest.mark.parametrize("num_done", [1, 7, 15])
async def test_a_resumed_request_equals_an_uninterrupted_one(tiny_model: TinyModels, num_done: int) -> None:
    config = EngineConfig(str(tiny_model("llama").folder), page_tokens=4, kv_cache_bytes=2 << 20, num_threads=1)
    engine = await AsyncEngine.from_config(config)
    whole = [delta async for delta in engine.generate(PROMPTS[4], SAMPLED)]
    token_ids = [token_id for delta in whole for token_id in delta.token_ids]
    text = "".join(delta.text for delta in whole)
    begun = engine.generate(PROMPTS[4], replace(SAMPLED, max_tokens=num_done))
    text_before = "".join([delta.text async for delta in begun if delta.finish_reason is None])
    rest = [d async for d in engine.generate(PROMPTS[4], SAMPLED, resume_token_ids=token_ids[:num_done])]
    assert token_ids[:num_done] + [token_id for delta in rest for token_id in delta.token_ids] == token_ids
    assert text.endswith("".join(delta.text for delta in rest))
    assert text.startswith(text_before)
    await engine.shutdown()
