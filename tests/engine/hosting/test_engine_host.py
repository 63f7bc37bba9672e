"""The host behind its event loop, on tiny real models: bits, sleep, waking, models that come and go, and what is left.

AGON_SOAK=1 makes 200 rounds of the last test instead of 6.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from engine.async_engine import AsyncEngine
from engine.batch import StepPlan
from engine.config import EngineConfig
from engine.errors import CheckpointError, EngineDead, InvalidRequest, NoRoomInPool
from engine.hosting import EngineHost
from engine.request import RequestDelta
from engine.sampling_params import SamplingParams
from engine.stats import EngineStats
from tests.engine.small_engines import GREEDY, PROMPTS, SAMPLED, TinyModels, load, tokens_of

NAMES = ("llama", "gemma2", "jamba")
NUM_ROUNDS = 200 if os.environ.get("AGON_SOAK") else 6
LONG = SamplingParams(temperature=0.0, max_tokens=150, ignore_eos=True)


def config_of(folder: Path, **settings: object) -> EngineConfig:
    return EngineConfig(str(folder), page_tokens=4, max_running=8, num_threads=1, **settings)  # type: ignore[arg-type]


@pytest.fixture
async def host() -> AsyncIterator[EngineHost]:
    async with EngineHost(pool_bytes=600_000, num_threads=1) as host:
        yield host


@pytest.fixture(scope="module")
def alone(tiny_model: TinyModels) -> dict[tuple[str, bool], list[list[int]]]:
    """Tokens of each model in an engine of its own, greedy and seeded."""
    found = {}
    for name in NAMES:
        with load(tiny_model(name).folder) as llm:
            for params in (GREEDY, SAMPLED):
                found[name, params.is_greedy] = tokens_of(llm, PROMPTS, params)
    return found


async def tokens(engine: AsyncEngine, prompt: list[int], params: SamplingParams) -> list[int]:
    return [token_id async for delta in engine.generate(prompt, params) for token_id in delta.token_ids]


async def all_tokens(engine: AsyncEngine, params: SamplingParams) -> list[list[int]]:
    return await asyncio.gather(*[tokens(engine, prompt, params) for prompt in PROMPTS])


async def test_models_share_a_pool_and_bring_their_own_tokens(
    host: EngineHost, tiny_model: TinyModels, alone: dict[tuple[str, bool], list[list[int]]]
) -> None:
    """They come one after another, which cuts the pool anew under running requests, and sleep meanwhile."""
    running = []
    for name in NAMES:
        engine = await host.add(name, config_of(tiny_model(name).folder))
        running += [asyncio.ensure_future(all_tokens(engine, params)) for params in (GREEDY, SAMPLED)]
    for name in NAMES:
        await host.sleep(name)
        await host.check_integrity()
        assert host.states()[name] == "asleep"
        await host.wake(name)
    found = iter(await asyncio.gather(*running))
    for name in NAMES:
        assert [next(found), next(found)] == [alone[name, True], alone[name, False]]
    report = await host.report()
    assert {model.name for model in report.models} == set(NAMES)
    assert all(model.used_bytes == 0 < model.evictable_bytes for model in report.models)
    await host.check_integrity()
    cells = await host.engine("llama").picture()
    assert {cell.layer_type for cell in cells} >= {"gemma2", "jamba"}


async def test_requests_of_a_sleeping_model_wait(host: EngineHost, tiny_model: TinyModels) -> None:
    engine = await host.add("llama", config_of(tiny_model("llama").folder))
    await host.sleep("llama")
    await host.sleep("llama")  # without effect
    waiting = asyncio.ensure_future(tokens(engine, PROMPTS[0], GREEDY))
    aborted = engine.generate(PROMPTS[1], GREEDY)
    await asyncio.sleep(0.05)
    await aborted.aclose()
    assert not waiting.done()
    await asyncio.gather(host.wake("llama"), host.wake("llama"))
    assert len(await waiting) == 16
    assert host.states() == {"llama": "resident"}


async def test_a_sleeping_model_can_be_removed(host: EngineHost, tiny_model: TinyModels) -> None:
    engine = await host.add("llama", config_of(tiny_model("llama").folder))
    await host.sleep("llama")
    waiting = engine.generate(PROMPTS[0], GREEDY)
    await host.remove("llama")
    assert [delta.finish_reason async for delta in waiting] == ["abort"]
    assert host.states() == {}


async def test_an_error_ends_one_model_alone(
    host: EngineHost, tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = await host.add("llama", config_of(tiny_model("llama").folder))
    bad = await host.add("other", config_of(tiny_model("llama").folder))
    model = host._models["other"]
    assert model.core is not None

    def fail(plan: StepPlan) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(model.core._runner, "launch", fail)
    going_on = asyncio.ensure_future(tokens(good, PROMPTS[0], LONG))
    with pytest.raises(EngineDead, match="boom"):
        await tokens(bad, PROMPTS[0], GREEDY)
    assert len(await going_on) == 150
    assert not bad.is_alive
    assert good.is_alive
    assert host.states() == {"llama": "resident"}
    report = await host.report()
    assert [model.name for model in report.models] == ["llama"]
    await host.check_integrity()
    await host.add("other", config_of(tiny_model("llama").folder))


async def test_what_streams_and_commands_take_is_charged_to_their_model(
    host: EngineHost, tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await host.add("llama", config_of(tiny_model("llama").folder))
    charged: list[tuple[str, float]] = []
    monkeypatch.setattr(host._thread._host, "charge", lambda *args: charged.append(args))
    publish = engine.on_step

    def publish_slowly(deltas: Sequence[RequestDelta], stats: EngineStats) -> None:
        publish(deltas, stats)
        time.sleep(0.005)

    monkeypatch.setattr(engine, "on_step", publish_slowly)
    assert len(await tokens(engine, PROMPTS[0], GREEDY)) == 16
    await host.report()  # the last charge comes after the last delta
    assert {name for name, _ in charged} == {"llama"}
    assert len(charged) == 17, "a command and 16 steps"
    assert sum(seconds for _, seconds in charged) >= 16 * 0.005


async def test_models_that_cannot_come_are_refused(host: EngineHost, tiny_model: TinyModels, tmp_path: Path) -> None:
    folder = tiny_model("llama").folder
    engine = await host.add("llama", config_of(folder), floor_bytes=300_000)
    with pytest.raises(InvalidRequest, match="there is a model 'llama' already"):
        await host.add("llama", config_of(folder))
    with pytest.raises(CheckpointError):
        await host.add("missing", config_of(tmp_path))
    with pytest.raises(NoRoomInPool, match="floors of all models"):
        await host.add("greedy", config_of(folder), floor_bytes=400_000)
    with pytest.raises(InvalidRequest, match="several processes"):
        await host.add("wide", config_of(folder, tensor_parallel=2))
    with pytest.raises(InvalidRequest, match="there is no model 'greedy'"):
        await host.sleep("greedy")
    assert len(await tokens(engine, PROMPTS[0], GREEDY)) == 16


async def test_models_that_come_sleep_wake_and_go_leave_nothing(host: EngineHost, tiny_model: TinyModels) -> None:
    steady = await host.add("llama", config_of(tiny_model("llama").folder))
    expected = await tokens(steady, PROMPTS[0], LONG)

    async def one_round() -> None:
        running = asyncio.ensure_future(tokens(steady, PROMPTS[0], LONG))
        engine = await host.add("gemma2", config_of(tiny_model("gemma2").folder, share_weights="on"))
        other = asyncio.ensure_future(tokens(engine, PROMPTS[2], GREEDY))
        await host.sleep("gemma2")
        await host.wake("gemma2")
        assert len(await other) == 16
        await host.remove("gemma2", drain_s=5.0)
        assert await running == expected

    for _ in range(3):  # threads and caches of libraries that stay
        await one_round()
    before = resources()
    for _ in range(NUM_ROUNDS):
        await one_round()
    after = resources()
    assert after[0] <= before[0], "file descriptors"
    assert after[1] <= before[1] + 8, "mappings"
    await host.check_integrity()
    report = await host.report()
    assert [model.name for model in report.models] == ["llama"]


def resources() -> tuple[int, int]:
    """Open file descriptors and mappings of this process."""
    return len(os.listdir("/proc/self/fd")), len(Path("/proc/self/maps").read_text().splitlines())
