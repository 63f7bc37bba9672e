"""The engine behind its event loop, in a thread and in a process: streams, aborts, refusals, errors, and the end."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import NoReturn

import pytest

from engine.async_engine import AsyncEngine, RequestStream
from engine.batch import StepPlan
from engine.core import EngineCore
from engine.errors import ContextTooLong, EngineDead, InvalidRequest, QueueFull
from engine.loaded_engine import LoadedEngine
from engine.request import RequestDelta
from engine.sampling_params import SamplingParams
from tests.engine.fake_engine_process import start_process
from tests.engine.fakes import GREEDY, continuation, loaded, make_core, text_of
from tests.engine.step_latch import PATIENCE_S, StepLatch, begin, until

PROMPT = [5, 9, 17, 33, 65]
FOREVER = replace(GREEDY, max_tokens=900)


async def start(core: EngineCore) -> AsyncEngine:
    return await AsyncEngine.start(lambda: loaded(core))


@pytest.fixture(params=["in turn", "late", "process"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    if request.param == "process":
        engine = await start_process("quick")
    else:
        core, _ = make_core(300, steps=request.param)
        engine = await start(core)
    yield engine
    await engine.shutdown()


@dataclass
class OneStep:
    """An engine that does one step and then waits for the test to let it go on."""

    latch: StepLatch
    engine: AsyncEngine


@pytest.fixture
async def one_step() -> AsyncIterator[OneStep]:
    latch = StepLatch()
    core, runner = make_core(300)
    latch.hold(runner)
    engine = await start(core)
    latch.allow()
    yield OneStep(latch, engine)
    latch.open()
    await engine.shutdown()


async def collect(stream: RequestStream) -> tuple[str, list[int], RequestDelta]:
    """Text, tokens and the last delta."""
    deltas = [delta async for delta in stream]
    return "".join(delta.text for delta in deltas), [t for delta in deltas for t in delta.token_ids], deltas[-1]


async def test_a_stream_brings_the_whole_output(engine: AsyncEngine) -> None:
    text, token_ids, last = await collect(engine.generate(PROMPT, GREEDY))
    assert token_ids == continuation(PROMPT, GREEDY)
    assert text == text_of(token_ids)
    assert last.finish_reason == "length"
    assert last.queue_s is not None


async def test_many_requests_at_once_do_not_mix(engine: AsyncEngine) -> None:
    prompts = [[index + 2, *PROMPT] for index in range(40)]
    results = await asyncio.gather(*[collect(engine.generate(prompt, GREEDY)) for prompt in prompts])
    assert [token_ids for _, token_ids, _ in results] == [continuation(prompt, GREEDY) for prompt in prompts]


async def test_all_samples_come_in_one_stream(engine: AsyncEngine) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=4, ignore_eos=True)
    samples: dict[int, list[int]] = {}
    async for delta in engine.generate(PROMPT, params):
        samples.setdefault(delta.index, []).extend(delta.token_ids)
    assert [samples[i] for i in range(3)] == [continuation(PROMPT, params, seed=5, index=i) for i in range(3)]


async def test_a_request_can_be_resumed(engine: AsyncEngine) -> None:
    tokens = continuation(PROMPT, GREEDY)
    _, rest, _ = await collect(engine.generate(PROMPT, GREEDY, resume_token_ids=tokens[:5]))
    assert rest == tokens[5:]


async def assert_aborted_within_one_step(one_step: OneStep) -> None:
    one_step.latch.open()
    engine = one_step.engine
    await until(engine, lambda: engine.stats().aborted_total == 1)
    assert engine.stats().steps_total <= 2
    assert engine.stats().pages_used == 0


async def test_closing_a_stream_frees_its_pages(one_step: OneStep) -> None:
    stream = one_step.engine.generate(PROMPT, FOREVER)
    await anext(stream)
    await stream.aclose()
    await assert_aborted_within_one_step(one_step)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_async_with_closes_the_stream(one_step: OneStep) -> None:
    async with one_step.engine.generate(PROMPT, FOREVER) as stream:
        await anext(stream)
    await assert_aborted_within_one_step(one_step)


async def test_cancelling_the_reader_frees_the_pages(one_step: OneStep) -> None:
    reader = await begin(collect(one_step.engine.generate(PROMPT, FOREVER)))
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await assert_aborted_within_one_step(one_step)


async def test_a_dropped_stream_frees_its_pages(one_step: OneStep) -> None:
    async for _ in one_step.engine.generate(PROMPT, FOREVER):
        break
    gc.collect()
    await assert_aborted_within_one_step(one_step)


async def test_an_abort_by_id_ends_the_stream_with_that_reason(one_step: OneStep) -> None:
    stream = one_step.engine.generate(PROMPT, FOREVER, request_id="mine")
    await anext(stream)
    one_step.engine.abort("mine")
    one_step.engine.abort("unknown")
    one_step.latch.open()
    _, _, last = await collect(stream)
    assert last.finish_reason == "abort"
    one_step.engine.abort("mine")


@pytest.mark.parametrize("num_tokens", [3, 200])
async def test_a_slow_reader_gets_merged_deltas(engine: AsyncEngine, num_tokens: int) -> None:
    params = replace(GREEDY, max_tokens=num_tokens)
    stream = engine.generate(PROMPT, params)
    await until(engine, lambda: not engine.stats().running and engine.stats().finished_total == 1)
    delta = await anext(stream)
    assert list(delta.token_ids) == continuation(PROMPT, params)
    assert delta.finish_reason == "length"


async def test_refusals_come_at_once_and_before_any_work() -> None:
    latch = StepLatch()
    core, runner = make_core(max_queued_requests=1, max_running=1)
    latch.hold(runner)
    engine = await start(core)
    with pytest.raises(ContextTooLong):
        engine.generate([3] * 2000, GREEDY)
    with pytest.raises(InvalidRequest):
        engine.generate([], GREEDY)
    running = engine.generate(PROMPT, GREEDY, request_id="running")
    latch.allow()
    await anext(running)
    waiting = engine.generate(PROMPT, GREEDY)
    with pytest.raises(QueueFull):
        engine.generate(PROMPT, GREEDY)
    with pytest.raises(InvalidRequest, match="in use"):
        engine.generate(PROMPT, GREEDY, request_id="running")
    latch.open()
    await collect(waiting)
    await engine.shutdown()


async def test_an_error_in_the_thread_ends_every_stream_and_is_visible(caplog: pytest.LogCaptureFixture) -> None:
    core, runner = make_core()

    def broken(plan: StepPlan) -> NoReturn:
        raise RuntimeError("no more memory")

    latch = StepLatch()
    latch.hold(runner, broken)
    engine = await start(core)
    assert engine.is_alive
    streams = [engine.generate(PROMPT, GREEDY) for _ in range(3)]
    latch.open()
    for stream in streams:
        with pytest.raises(EngineDead, match="no more memory"):
            await anext(stream)
    assert not engine.is_alive
    with pytest.raises(EngineDead):
        engine.generate(PROMPT, GREEDY)
    with pytest.raises(EngineDead):
        await engine.picture()
    assert "the engine has stopped after an error" in caplog.text
    await engine.shutdown()
    assert runner.is_closed


async def test_shutdown_ends_although_the_runner_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    core, runner = make_core()

    def broken() -> NoReturn:
        raise RuntimeError("an illegal memory access was encountered")

    runner.close = broken  # type: ignore[method-assign]
    engine = await start(core)
    await asyncio.wait_for(engine.shutdown(), timeout=30)
    assert not engine.is_alive
    assert "could not be closed" in caplog.text
    assert "illegal memory access" in caplog.text


async def test_the_pool_can_be_looked_at_while_a_request_runs(one_step: OneStep) -> None:
    stream = one_step.engine.generate(PROMPT, GREEDY)
    await anext(stream)  # the second step waits for the test
    looking = await begin(one_step.engine.picture(max_cells=8))
    one_step.latch.open()
    cells = await looking
    assert len(cells) <= 8
    assert sum(cell.used for cell in cells) > 0
    assert [delta async for delta in stream][-1].finish_reason == "length"


async def test_an_idle_engine_shows_its_pool_and_sleeps_on(engine: AsyncEngine) -> None:
    cells = await engine.picture()
    assert {(cell.layer_type, cell.used, cell.evictable) for cell in cells} == {(None, 0.0, 0.0)}
    assert engine.stats().steps_total == 0


async def test_an_engine_that_stops_refuses_a_picture_at_once() -> None:
    core, runner = make_core()
    latch = StepLatch()
    latch.hold(runner)
    engine = await start(core)
    stream = engine.generate(PROMPT, GREEDY)
    await latch.begun(1)
    stopping = await begin(engine.shutdown())
    with pytest.raises(EngineDead):
        await engine.picture()
    latch.open()
    await stopping
    assert (await anext(stream)).finish_reason in (None, "abort")


async def test_cancelling_a_picture_disturbs_no_request(one_step: OneStep) -> None:
    stream = one_step.engine.generate(PROMPT, GREEDY)
    looking = await begin(one_step.engine.picture())
    looking.cancel()
    one_step.latch.open()
    assert [delta async for delta in stream][-1].finish_reason == "length"


async def test_an_error_while_loading_is_raised_to_the_caller() -> None:
    def load() -> NoReturn:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        await AsyncEngine.start(load)


async def test_the_model_is_loaded_run_and_closed_in_one_thread() -> None:
    core, runner = make_core()
    threads = set()
    launch, close = runner.launch, runner.close

    def load() -> LoadedEngine:
        threads.add(threading.current_thread())
        return loaded(core)

    def noted_launch(plan: StepPlan) -> None:
        threads.add(threading.current_thread())
        launch(plan)

    def noted_close() -> None:
        threads.add(threading.current_thread())
        close()

    runner.launch, runner.close = noted_launch, noted_close  # type: ignore[method-assign]
    engine = await AsyncEngine.start(load)
    await collect(engine.generate(PROMPT, GREEDY))
    await engine.shutdown()
    assert len(threads) == 1
    assert threads != {threading.current_thread()}


async def test_shutdown_lets_running_requests_finish_and_refuses_new_ones(engine: AsyncEngine) -> None:
    reader = await begin(collect(engine.generate(PROMPT, GREEDY)))
    ending = await begin(engine.shutdown(drain_s=PATIENCE_S))
    with pytest.raises(EngineDead):
        engine.generate(PROMPT, GREEDY)
    assert not engine.is_alive
    _, token_ids, last = await reader
    await ending
    assert token_ids == continuation(PROMPT, GREEDY)
    assert last.finish_reason == "length"


async def test_shutdown_aborts_what_does_not_finish_in_time() -> None:
    latch = StepLatch()
    core, runner = make_core(300)
    latch.hold(runner)
    engine = await start(core)
    stream = engine.generate(PROMPT, FOREVER)
    latch.allow(3)
    await anext(stream)
    ending = await begin(engine.shutdown(drain_s=0.01))
    while not ending.done():  # one step at a time, and between two of them this loop sees that the time is over
        await asyncio.wait([ending], timeout=0.02)
        latch.allow()
    _, token_ids, last = await collect(stream)
    assert last.finish_reason == "abort"
    assert len(token_ids) < 10


async def test_an_idle_engine_takes_no_steps_and_wakes_for_the_next_request(engine: AsyncEngine) -> None:
    await collect(engine.generate(PROMPT, GREEDY))
    assert engine.stats().steps_total == GREEDY.max_tokens
    await collect(engine.generate(PROMPT, GREEDY))
    assert engine.stats().steps_total == 2 * GREEDY.max_tokens


async def test_the_tokenizer_and_the_limits_can_be_used_while_it_runs(engine: AsyncEngine) -> None:
    assert engine.tokenizer.decode(engine.tokenizer.encode("hello")) == "hello"
    assert engine.limits.max_model_len == 1024


async def test_an_idle_engine_is_not_alive_once_a_process_of_its_model_has_gone() -> None:
    core, _ = make_core(300)
    others = threading.Event()
    others.set()
    engine = await AsyncEngine.start(lambda: loaded(core, others.is_set))
    assert engine.is_alive
    others.clear()
    assert not engine.is_alive
    await engine.shutdown()
