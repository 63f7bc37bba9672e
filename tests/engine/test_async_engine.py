import asyncio
import gc
import threading
from dataclasses import dataclass, field, replace

import pytest

from engine.async_engine import AsyncEngine
from engine.batch import StepOutput, StepPlan
from engine.config import SamplingParams
from engine.core import EngineCore, LoadedEngine
from engine.errors import ContextTooLong, EngineDead, InvalidRequest, QueueFull
from tests.engine.fakes import GREEDY, LetterTokenizer, continuation, make_core, text_of

PROMPT = [5, 9, 17, 33, 65]
FOREVER = replace(GREEDY, max_tokens=900)


@dataclass
class Gate:
    """Lets a test decide when steps happen: each step waits for a permit; `open` gives all of them."""

    permits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    is_open: bool = False

    def open(self):
        self.is_open = True
        self.permits.release()

    def hold(self, run):
        def held(plan: StepPlan) -> StepOutput:
            if not self.is_open:
                self.permits.acquire()
            return run(plan)

        return held


async def start(core: EngineCore) -> AsyncEngine:
    return await AsyncEngine.start(lambda: LoadedEngine(core, LetterTokenizer(), None))


@pytest.fixture(params=["in turn", "late"])
async def engine(request):
    core, _ = make_core(300, steps=request.param)
    engine = await start(core)
    yield engine
    await engine.shutdown()


@dataclass
class OneStep:
    """An engine that does one step and then waits for the test to let it go on."""

    gate: Gate
    engine: AsyncEngine


@pytest.fixture
async def one_step():
    gate = Gate()
    core, runner = make_core(300)
    runner.launch = gate.hold(runner.launch)
    engine = await start(core)
    gate.permits.release()
    yield OneStep(gate, engine)
    gate.open()
    await engine.shutdown()


async def collect(stream):
    deltas = [delta async for delta in stream]
    return "".join(delta.text for delta in deltas), [t for delta in deltas for t in delta.token_ids], deltas[-1]


async def until(condition):
    """Let the engine thread work until something holds."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def test_a_stream_brings_the_whole_output(engine):
    text, token_ids, last = await collect(engine.generate(PROMPT, GREEDY))
    assert token_ids == continuation(PROMPT, GREEDY)
    assert text == text_of(token_ids)
    assert last.finish_reason == "length"
    assert last.queue_s is not None


async def test_many_requests_at_once_do_not_mix(engine):
    prompts = [[index + 2, *PROMPT] for index in range(40)]
    results = await asyncio.gather(*[collect(engine.generate(prompt, GREEDY)) for prompt in prompts])
    assert [token_ids for _, token_ids, _ in results] == [continuation(prompt, GREEDY) for prompt in prompts]


async def test_all_samples_come_in_one_stream(engine):
    params = SamplingParams(n=3, seed=5, max_tokens=4, ignore_eos=True)
    samples = {}
    async for delta in engine.generate(PROMPT, params):
        samples.setdefault(delta.index, []).extend(delta.token_ids)
    assert [samples[i] for i in range(3)] == [continuation(PROMPT, params, seed=5, index=i) for i in range(3)]


async def test_a_request_can_be_resumed(engine):
    tokens = continuation(PROMPT, GREEDY)
    _, rest, _ = await collect(engine.generate(PROMPT, GREEDY, resume_token_ids=tokens[:5]))
    assert rest == tokens[5:]


async def assert_aborted_within_one_step(one_step):
    one_step.gate.open()
    engine = one_step.engine
    await until(lambda: engine.stats().aborted_total == 1)
    assert engine.stats().steps_total <= 2
    assert engine.stats().pages_used == 0


async def test_closing_a_stream_frees_its_pages(one_step):
    stream = one_step.engine.generate(PROMPT, FOREVER)
    await anext(stream)
    await stream.aclose()
    await assert_aborted_within_one_step(one_step)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_async_with_closes_the_stream(one_step):
    async with one_step.engine.generate(PROMPT, FOREVER) as stream:
        await anext(stream)
    await assert_aborted_within_one_step(one_step)


async def test_cancelling_the_reader_frees_the_pages(one_step):
    reader = asyncio.create_task(collect(one_step.engine.generate(PROMPT, FOREVER)))
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await assert_aborted_within_one_step(one_step)


async def test_a_dropped_stream_frees_its_pages(one_step):
    async for _ in one_step.engine.generate(PROMPT, FOREVER):
        break
    gc.collect()
    await assert_aborted_within_one_step(one_step)


async def test_an_abort_by_id_ends_the_stream_with_that_reason(one_step):
    stream = one_step.engine.generate(PROMPT, FOREVER, request_id="mine")
    await anext(stream)
    one_step.engine.abort("mine")
    one_step.engine.abort("unknown")
    one_step.gate.open()
    _, _, last = await collect(stream)
    assert last.finish_reason == "abort"
    one_step.engine.abort("mine")


@pytest.mark.parametrize("num_tokens", [3, 200])
async def test_a_slow_reader_gets_merged_deltas(engine, num_tokens):
    params = replace(GREEDY, max_tokens=num_tokens)
    stream = engine.generate(PROMPT, params)
    await until(lambda: not engine.stats().running and engine.stats().finished_total)
    delta = await anext(stream)
    assert list(delta.token_ids) == continuation(PROMPT, params)
    assert delta.finish_reason == "length"


async def test_refusals_come_at_once_and_before_any_work():
    gate = Gate()
    core, runner = make_core(max_queued_requests=1, max_running=1)
    runner.launch = gate.hold(runner.launch)
    engine = await start(core)
    with pytest.raises(ContextTooLong):
        engine.generate([3] * 2000, GREEDY)
    with pytest.raises(InvalidRequest):
        engine.generate([], GREEDY)
    running = engine.generate(PROMPT, GREEDY, request_id="running")
    gate.permits.release()
    await anext(running)
    waiting = engine.generate(PROMPT, GREEDY)
    with pytest.raises(QueueFull):
        engine.generate(PROMPT, GREEDY)
    with pytest.raises(InvalidRequest, match="in use"):
        engine.generate(PROMPT, GREEDY, request_id="running")
    gate.open()
    await collect(waiting)
    await engine.shutdown()


async def test_an_error_in_the_thread_ends_every_stream_and_is_visible(caplog):
    core, runner = make_core()

    def broken(plan):
        raise RuntimeError("no more memory")

    gate = Gate()
    runner.launch = gate.hold(broken)
    engine = await start(core)
    assert engine.is_alive
    streams = [engine.generate(PROMPT, GREEDY) for _ in range(3)]
    gate.open()
    for stream in streams:
        with pytest.raises(EngineDead, match="no more memory"):
            await anext(stream)
    assert not engine.is_alive
    with pytest.raises(EngineDead):
        engine.generate(PROMPT, GREEDY)
    with pytest.raises(EngineDead):
        await engine.picture()
    assert "engine thread has died" in caplog.text
    await engine.shutdown()
    assert runner.is_closed


async def test_a_runner_that_cannot_be_closed_keeps_nobody_waiting(caplog):
    core, runner = make_core()

    def broken():
        raise RuntimeError("an illegal memory access was encountered")

    runner.close = broken
    engine = await start(core)
    await asyncio.wait_for(engine.shutdown(), timeout=30)
    assert not engine.is_alive
    assert "could not be closed" in caplog.text
    assert "illegal memory access" in caplog.text


async def test_the_pool_can_be_looked_at_while_a_request_runs(one_step):
    stream = one_step.engine.generate(PROMPT, GREEDY)
    await anext(stream)  # the second step waits for the test
    looking = asyncio.create_task(one_step.engine.picture(max_cells=8))
    await asyncio.sleep(0)
    one_step.gate.open()
    cells = await looking
    assert len(cells) <= 8
    assert sum(cell.used for cell in cells) > 0
    assert [delta async for delta in stream][-1].finish_reason == "length"


async def test_an_idle_engine_shows_its_pool_and_sleeps_on(engine):
    cells = await engine.picture()
    assert {(cell.layer_type, cell.used, cell.evictable) for cell in cells} == {(None, 0.0, 0.0)}
    assert engine.stats().steps_total == 0


async def test_nobody_waits_for_a_picture_of_an_engine_that_stops():
    core, runner = make_core()
    gate = Gate()
    runner.launch = gate.hold(runner.launch)
    engine = await start(core)
    stream = engine.generate(PROMPT, GREEDY)
    await asyncio.sleep(0.05)  # the thread is in its first step
    stopping = asyncio.create_task(engine.shutdown())
    await asyncio.sleep(0)
    with pytest.raises(EngineDead):
        await engine.picture()
    gate.open()
    await stopping
    assert (await anext(stream)).finish_reason in (None, "abort")


async def test_who_leaves_before_the_picture_is_taken_disturbs_nobody(one_step):
    stream = one_step.engine.generate(PROMPT, GREEDY)
    looking = asyncio.create_task(one_step.engine.picture())
    await asyncio.sleep(0)
    looking.cancel()
    one_step.gate.open()
    assert [delta async for delta in stream][-1].finish_reason == "length"


async def test_an_error_while_loading_is_raised_to_the_caller():
    def load():
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        await AsyncEngine.start(load)


async def test_the_model_is_loaded_run_and_closed_in_one_thread():
    core, runner = make_core()
    threads = set()
    run, close = runner.launch, runner.close
    runner.launch = lambda plan: (threads.add(threading.current_thread()), run(plan))[1]
    runner.close = lambda: (threads.add(threading.current_thread()), close())[1]

    def load():
        threads.add(threading.current_thread())
        return LoadedEngine(core, LetterTokenizer(), None)

    engine = await AsyncEngine.start(load)
    await collect(engine.generate(PROMPT, GREEDY))
    await engine.shutdown()
    assert len(threads) == 1
    assert threads != {threading.current_thread()}


async def test_shutdown_lets_running_requests_finish_and_refuses_new_ones(engine):
    reader = asyncio.create_task(collect(engine.generate(PROMPT, GREEDY)))
    await asyncio.sleep(0)
    ending = asyncio.create_task(engine.shutdown(drain_s=30))
    await asyncio.sleep(0)
    with pytest.raises(EngineDead):
        engine.generate(PROMPT, GREEDY)
    assert not engine.is_alive
    _, token_ids, last = await reader
    await ending
    assert token_ids == continuation(PROMPT, GREEDY)
    assert last.finish_reason == "length"


async def test_shutdown_aborts_what_does_not_finish_in_time():
    gate = Gate()
    core, runner = make_core(300)
    runner.launch = gate.hold(runner.launch)
    engine = await start(core)
    stream = engine.generate(PROMPT, FOREVER)
    gate.permits.release(3)
    await anext(stream)
    ending = asyncio.create_task(engine.shutdown(drain_s=0.01))
    while not ending.done():  # one step at a time, and between two of them this loop sees that the time is over
        await asyncio.sleep(0.02)
        gate.permits.release()
    _, token_ids, last = await collect(stream)
    assert last.finish_reason == "abort"
    assert len(token_ids) < 10


async def test_an_idle_engine_takes_no_steps_and_wakes_for_the_next_request(engine):
    await collect(engine.generate(PROMPT, GREEDY))
    assert engine.stats().steps_total == GREEDY.max_tokens
    await collect(engine.generate(PROMPT, GREEDY))
    assert engine.stats().steps_total == 2 * GREEDY.max_tokens


async def test_the_tokenizer_and_the_limits_can_be_used_while_it_runs(engine):
    assert engine.tokenizer.decode(engine.tokenizer.encode("hello")) == "hello"
    assert engine.limits.max_model_len == 1024


async def test_an_idle_engine_is_not_alive_once_a_process_of_its_model_has_gone():
    core, _ = make_core(300)
    others = threading.Event()
    others.set()
    engine = await AsyncEngine.start(lambda: LoadedEngine(core, LetterTokenizer(), None, is_alive=others.is_set))
    assert engine.is_alive
    others.clear()
    assert not engine.is_alive
    await engine.shutdown()
