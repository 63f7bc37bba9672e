"""Vectors of prompts: those of transformers' hidden states, and the same to the bit under every setting."""

import math
from collections.abc import Sequence

import pytest
import torch

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.errors import ContextTooLong, InvalidRequest
from engine.llm import LLM
from engine.prompt_reading import cosine
from engine.sampling_params import Pooling, PoolingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.runner.device.device_runners import llm_on, load_device, settings_for
from tests.engine.small_engines import GREEDY, PAGE_BYTES, PROMPTS, TinyModels, load

POOLINGS: tuple[Pooling, ...] = ("mean", "last", "cls")
Vectors = list[list[float]]


def vectors_of(llm: LLM, pooling: Pooling, prompts: Sequence[list[int]] = PROMPTS, **options: object) -> Vectors:
    params = PoolingParams(pooling, **options)  # type: ignore[arg-type]
    vectors = [result.outputs.embedding for result in llm.embed(list(prompts), pooling_params=params)]
    llm._core.check_integrity()
    return vectors


@torch.no_grad()
def expected(model: TinyModel, prompt: list[int], pooling: Pooling) -> torch.Tensor:
    rows = model.reference(torch.tensor([prompt]), output_hidden_states=True).hidden_states[-1][0]
    pooled: dict[str, torch.Tensor] = {"mean": rows.mean(dim=0), "last": rows[-1], "cls": rows[0]}
    return pooled[pooling]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("name", ["llama", "gemma3", "jamba"])
def test_they_are_pooled_hidden_states_of_transformers(tiny_model: TinyModels, name: str, pooling: Pooling) -> None:
    model = tiny_model(name)
    llm = load(model.folder, max_batched_tokens=24)
    for prompt, vector in zip(PROMPTS, vectors_of(llm, pooling, normalize=False), strict=True):
        assert torch.allclose(torch.tensor(vector), expected(model, prompt, pooling), atol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_batched_tokens": 1}, id="one token a step"),
        pytest.param({"max_batched_tokens": 7, "overlap": True}, id="small chunks, one step in flight"),
        pytest.param({"kv_cache_bytes": 24 * PAGE_BYTES, "max_batched_tokens": 9}, id="a scarce pool"),
    ],
)
def test_they_have_the_same_bits_under_every_setting(
    tiny_model: TinyModels, settings: dict[str, object], pooling: Pooling
) -> None:
    folder = tiny_model("llama").folder
    assert vectors_of(load(folder, **settings), pooling) == vectors_of(load(folder, max_running=1), pooling)


def test_a_preempted_request_reads_no_row_twice(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama").folder
    llm = load(folder, kv_cache_bytes=24 * PAGE_BYTES, max_batched_tokens=5)
    core = llm._core
    core.add_request("answer", PROMPTS[3], GREEDY)
    for _ in range(6):
        core.step()
    prompt = PROMPTS[4][:55]
    vector: tuple[float, ...] | None = None
    core.add_pooling_request("vector", prompt, PoolingParams("mean"))
    while not core.is_idle:
        for delta in core.step():
            vector = delta.embedding or vector
    assert core.stats().preemptions_total > 0
    assert vector is not None
    assert list(vector) == vectors_of(load(folder), "mean", [prompt])[0]


def test_only_rows_that_are_not_read_come_from_the_prefix_cache(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    cached = {}
    first = {pooling: vectors_of(llm, pooling, PROMPTS[4:5]) for pooling in POOLINGS}
    for pooling in POOLINGS:
        (result,) = llm.embed(PROMPTS[4:5], pooling_params=PoolingParams(pooling))
        assert [result.outputs.embedding] == first[pooling]
        cached[pooling] = result.num_cached_tokens > 0
    assert cached == {"mean": False, "last": True, "cls": False}


def test_they_have_length_one_also_after_they_are_cut(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    ((whole,), (cut,), (raw,)) = (
        vectors_of(llm, "mean", PROMPTS[4:5], **options)
        for options in ({}, {"dimensions": 8}, {"dimensions": 8, "normalize": False})
    )
    assert len(cut) == len(raw) == 8 < len(whole)
    assert math.hypot(*whole) == pytest.approx(1.0)
    assert math.hypot(*cut) == pytest.approx(1.0)
    assert cosine(cut, raw) == pytest.approx(1.0)
    assert cosine(cut, whole[:8]) == pytest.approx(1.0)
    with pytest.raises(InvalidRequest, match="dimensions must not exceed"):
        vectors_of(llm, "mean", dimensions=len(whole) + 1)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_device_runner_gives_the_same(tiny_model: TinyModels, pooling: Pooling) -> None:
    folder = tiny_model("llama").folder
    wanted = vectors_of(load(folder, operators="torch"), pooling)
    settings = {"max_batched_tokens": 16, "max_running": 5}
    llm = llm_on(load_device(folder, **settings), settings_for(folder, **settings))
    llm.generate(PROMPTS, GREEDY)  # decode steps replay graphs, before and after
    found = vectors_of(llm, pooling)
    assert torch.allclose(torch.tensor(found), torch.tensor(wanted), atol=1e-5)


def test_scores_are_cosines_of_pairs(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    vectors = vectors_of(llm, "last", PROMPTS[1:4])
    against_one = llm.score(PROMPTS[1], PROMPTS[1:4])
    assert [result.outputs.score for result in against_one] == [cosine(vectors[0], vector) for vector in vectors]
    assert against_one[0].outputs.score == pytest.approx(1.0)
    (pair,) = llm.score([PROMPTS[2]], [PROMPTS[3]])
    assert pair.outputs.score == cosine(vectors[1], vectors[2])
    assert pair.prompt_token_ids == PROMPTS[2] + PROMPTS[3]
    with pytest.raises(InvalidRequest, match="data_1 has 2 texts, data_2 3"):
        llm.score(PROMPTS[:2], PROMPTS[:3])


@pytest.mark.parametrize("is_own", [False, True], ids=["thread", "process"])
async def test_a_serving_engine_gives_them_between_answers(tiny_model: TinyModels, is_own: bool) -> None:
    folder = tiny_model("llama").folder
    config = EngineConfig(str(folder), page_tokens=4, kv_cache_bytes=2 << 20, num_threads=1, max_model_len=64)
    if is_own:
        engine = await AsyncEngine.in_own_process(config, "model_worker.engine_process")
    else:
        engine = await AsyncEngine.from_config(config)
    stream = engine.generate(PROMPTS[3], GREEDY)
    found = await engine.embed(PROMPTS[4], PoolingParams("mean"))
    assert len([delta async for delta in stream]) > 0
    assert found.num_prompt_tokens == len(PROMPTS[4])
    assert list(found.vector) == vectors_of(load(folder), "mean", PROMPTS[4:5])[0]
    with pytest.raises(ContextTooLong):
        await engine.embed([1] * 65, PoolingParams())
    await engine.embed([1] * 64, PoolingParams())
    with pytest.raises(InvalidRequest):
        await engine.embed([], PoolingParams())
    await engine.shutdown()
