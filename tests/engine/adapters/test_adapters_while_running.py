"""Adapters come and go while an engine answers: in a thread, in a process of its own, and beside other models."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.errors import AdapterError, InvalidRequest
from engine.hosting import EngineHost
from tests.engine.adapters.test_adapters_on_models import Adapted, adapted
from tests.engine.checkpoints import TinyModels
from tests.engine.small_engines import GREEDY, load
from tests.engine.stepper import random_prompt

PROMPT = random_prompt(0, 12)
LONG = replace(GREEDY, max_tokens=100)


def config(folder: Path) -> EngineConfig:
    return EngineConfig(str(folder), kv_cache_bytes=2 << 20, num_threads=1, max_adapters=2, page_tokens=4)


@pytest.fixture
def made(tiny_model: TinyModels, tmp_path: Path) -> Adapted:
    return adapted(tiny_model("llama").folder, tmp_path, count=2)


def expected(made: Adapted) -> list[list[int]]:
    found = []
    for folder in (made.model, *made.merged):
        with load(folder) as llm:
            found.append(llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids)
    return found


async def tokens(engine: AsyncEngine, adapter: str = "") -> list[int]:
    return [token async for delta in engine.generate(PROMPT, GREEDY, adapter=adapter) for token in delta.token_ids]


async def check(engine: AsyncEngine, made: Adapted) -> None:
    base, first, second = expected(made)
    stream = engine.generate(PROMPT, LONG)
    await anext(stream)  # it goes on while adapters come and go
    info = await engine.add_adapter("first", str(made.adapters[0]))
    assert (info.rank, info.kind) == (5, "LoRA")
    with pytest.raises(AdapterError, match="loaded already"):
        await engine.add_adapter("first", str(made.adapters[1]))
    with pytest.raises(AdapterError, match="no adapter_config"):
        await engine.add_adapter("nothing", str(made.model))
    await engine.add_adapter("second", str(made.adapters[1]))
    assert sorted(engine.adapters) == ["first", "second"]
    found = list(await asyncio.gather(tokens(engine), tokens(engine, "first"), tokens(engine, "second")))
    assert found == [base, first, second]
    await engine.remove_adapter("first")
    with pytest.raises(InvalidRequest, match="no adapter 'first'"):
        engine.generate(PROMPT, GREEDY, adapter="first")
    with pytest.raises(AdapterError, match="no adapter 'first'"):
        await engine.remove_adapter("first")
    await engine.add_adapter("again", str(made.adapters[0]))
    assert await tokens(engine, "again") == first
    assert [delta async for delta in stream][-1].finish_reason == "length"


async def test_adapters_come_and_go_in_a_thread(made: Adapted) -> None:
    engine = await AsyncEngine.from_config(config(made.model))
    try:
        await check(engine, made)
    finally:
        await engine.shutdown()


async def test_adapters_come_and_go_in_a_process_of_its_own(made: Adapted) -> None:
    engine = await AsyncEngine.in_own_process(config(made.model), "model_worker.engine_process")
    try:
        await check(engine, made)
    finally:
        await engine.shutdown()


async def test_an_adapter_is_removed_when_its_answers_have_ended(made: Adapted) -> None:
    engine = await AsyncEngine.from_config(config(made.model))
    try:
        await engine.add_adapter("first", str(made.adapters[0]))
        stream = engine.generate(PROMPT, LONG, adapter="first")
        await anext(stream)
        await engine.remove_adapter("first")
        deltas = [delta async for delta in stream]
        assert deltas[-1].finish_reason == "length"
    finally:
        await engine.shutdown()


async def test_adapters_of_a_hosted_model_survive_its_sleep(made: Adapted) -> None:
    base, first, _ = expected(made)
    async with EngineHost(pool_bytes=2 << 20, num_threads=1) as host:
        engine = await host.add("raven", config(made.model))
        await engine.add_adapter("first", str(made.adapters[0]))
        assert await tokens(engine, "first") == first
        await host.sleep("raven")
        answer = asyncio.ensure_future(tokens(engine, "first"))
        await host.wake("raven")
        assert await answer == first
        assert await tokens(engine) == base
