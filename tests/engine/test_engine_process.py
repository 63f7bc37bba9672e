"""The engine in a process of its own: what loading raises, and that neither process outlives or stops the other."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.async_engine import AsyncEngine, RequestStream
from engine.backend import Abort, Add, Drain, Picture, Stop
from engine.config import EngineConfig
from engine.engine_process.messages import HEAD, Load, LoadError, Ready, Stepped, to_child, to_parent
from engine.errors import (
    CheckpointError,
    CheckpointUnavailable,
    ContextTooLong,
    EngineDead,
    InvalidRequest,
    QueueFull,
)
from engine.request import RequestDelta, merge_deltas
from engine.sampling_params import SamplingParams, ThoughtTags
from tests.engine.fake_engine_process import MODULE, start_process
from tests.engine.fakes import GREEDY, continuation, text_of
from tests.engine.step_latch import PATIENCE_S, begin

PROMPT = [5, 9, 17, 33, 65]
FOREVER = replace(GREEDY, max_tokens=900)


def children() -> set[int]:
    """Child processes that this one has started since its test began, zombies included."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            found |= set(map(int, (task / "children").read_text().split()))
    return found - _OLDER


_OLDER: set[int] = set()  #: children that earlier tests of this process have left, such as a tracker of shared memory


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    _OLDER.clear()
    _OLDER.update(children())
    yield
    assert not children()


@pytest.fixture
async def slow() -> AsyncIterator[AsyncEngine]:
    engine = await start_process("slow")
    yield engine
    await engine.shutdown()


def the_child() -> int:
    (child,) = children()
    return child


async def read_all(stream: RequestStream) -> list[RequestDelta]:
    return [delta async for delta in stream]


async def until_dead(engine: AsyncEngine) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while engine.is_alive:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("model", "kind", "sentence"),
    [
        ("no checkpoint", CheckpointError, "there is no such model"),
        ("no hub", CheckpointUnavailable, "the hub cannot be reached"),
        ("no memory", MemoryError, "not enough memory"),
        ("unheard of", RuntimeError, "KeyError('a defect')"),
        ("killed", EngineDead, "the engine's process was killed by SIGKILL while it loaded the model"),
    ],
)
async def test_an_error_while_loading_comes_as_what_it_is(model: str, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as raised:
        await start_process(model)
    assert type(raised.value) is kind
    assert str(raised.value) == sentence


async def test_a_tokenizer_that_this_process_cannot_read_is_an_error_while_loading() -> None:
    def read(config: EngineConfig) -> None:
        raise CheckpointError("tokenizer.json is damaged")

    with pytest.raises(CheckpointError, match="damaged"):
        await AsyncEngine.in_own_process(EngineConfig("quick"), MODULE, read)  # type: ignore[arg-type]


async def test_giving_up_while_it_loads_ends_the_process() -> None:
    starting = await begin(start_process("endless"))
    child = the_child()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with asyncio.timeout(PATIENCE_S):
        while child in children():
            await asyncio.sleep(0.01)


async def test_samples_with_a_seed_are_those_of_the_thread() -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=40, ignore_eos=True, logprobs=2)
    engine = await start_process("quick")
    samples: dict[int, list[RequestDelta]] = {}
    async for delta in engine.generate(PROMPT, params):
        samples.setdefault(delta.index, []).append(delta)
    await engine.shutdown()
    for index in range(3):
        whole = merge_deltas(samples[index])
        assert list(whole.token_ids) == continuation(PROMPT, params, seed=5, index=index)
        assert whole.text == text_of(whole.token_ids)
        assert whole.logprobs is not None
        assert all(entry.top == ((0, -1.0), (1, -2.0)) for entry in whole.logprobs)


async def test_admission_is_decided_here_and_places_come_back() -> None:
    engine = await start_process("slow", max_running=1, max_queued_requests=2)
    with pytest.raises(ContextTooLong):
        engine.generate([3] * 2000, GREEDY)
    with pytest.raises(InvalidRequest):
        engine.generate([], GREEDY)
    streams = [engine.generate(PROMPT, FOREVER, request_id="running")]
    await anext(streams[0])
    streams += [engine.generate(PROMPT, FOREVER) for _ in range(2)]
    with pytest.raises(QueueFull):
        engine.generate(PROMPT, FOREVER)
    engine.abort("running")
    await read_all(streams[0])
    await anext(streams[1])
    streams.append(engine.generate(PROMPT, FOREVER))
    with pytest.raises(QueueFull):
        engine.generate(PROMPT, FOREVER)
    await engine.shutdown()


async def test_an_abort_by_id_and_a_dropped_stream_end_within_a_step(slow: AsyncEngine) -> None:
    mine = slow.generate(PROMPT, FOREVER, request_id="mine")
    other = slow.generate(PROMPT, FOREVER)
    await anext(mine)
    await anext(other)
    slow.abort("mine")
    slow.abort("unknown")
    await other.aclose()
    assert [delta async for delta in mine][-1].finish_reason == "abort"
    async with asyncio.timeout(PATIENCE_S):
        while slow.stats().aborted_total < 2:
            await slow.picture()
    assert slow.stats().pages_used == 0


async def test_a_parent_that_does_not_read_stops_no_engine() -> None:
    """The parent is a bare socket here: it reads nothing until all requests have finished."""
    ours, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).parents[2],
        )
    hears, says = to_parent(), to_child()
    params = replace(GREEDY, max_tokens=200, logprobs=20)
    prompts = {str(number): [number, *PROMPT] for number in range(16)}

    def read() -> object:
        size, number = HEAD.unpack(file.read(HEAD.size))
        return hears.decode(number, file.read(size))

    with ours, ours.makefile("rb") as file:
        ours.sendall(says.encode(Load(EngineConfig("quick"))))
        assert isinstance(read(), Ready)
        for request_id, prompt in prompts.items():
            ours.sendall(says.encode(Add(request_id, tuple(prompt), params, (), b"")))
        ours.sendall(says.encode(Drain()))
        assert child.stdin is not None
        await until_it_rests(child.pid)  # it has computed all of it; the socket holds a small part
        texts = dict.fromkeys(prompts, "")
        num_messages = 0
        while HEAD.size == len(head := file.read(HEAD.size)):
            size, number = HEAD.unpack(head)
            message = hears.decode(number, file.read(size))
            assert isinstance(message, Stepped)
            num_messages += 1
            for delta in message.deltas:
                texts[delta.request_id] += delta.text
    assert texts == {request_id: text_of(continuation(prompt, params)) for request_id, prompt in prompts.items()}
    assert num_messages < 180  # of 200 steps
    child.stdin.close()
    assert child.wait(PATIENCE_S) == 0


async def until_it_rests(pid: int) -> None:
    """Wait until a process has used no processor time for a while."""

    def ticks() -> int:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    async with asyncio.timeout(PATIENCE_S):
        since, used = time.monotonic(), -1
        while time.monotonic() - since < 1:
            if ticks() != used:
                since, used = time.monotonic(), ticks()
            await asyncio.sleep(0.05)


async def test_kill_9_of_the_engine_ends_every_stream_and_is_visible(
    slow: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    streams = [slow.generate(PROMPT, FOREVER) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    looking = await begin(slow.picture())
    os.kill(the_child(), signal.SIGKILL)
    for stream in streams:
        with pytest.raises(EngineDead, match="the engine's process was killed by SIGKILL"):
            await read_all(stream)
    assert not slow.is_alive
    with pytest.raises(EngineDead):
        slow.generate(PROMPT, GREEDY)
    with pytest.raises(EngineDead):
        await slow.picture()
    await asyncio.wait([looking])
    assert "killed by SIGKILL" in caplog.text


async def test_kill_9_of_an_idle_engine_is_noticed(slow: AsyncEngine) -> None:
    os.kill(the_child(), signal.SIGKILL)
    await until_dead(slow)


async def test_an_error_in_the_engine_keeps_its_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    engine = await start_process("broken")
    with pytest.raises(EngineDead, match=r"stopped after an error: RuntimeError.*illegal memory access"):
        await anext(engine.generate(PROMPT, GREEDY))
    assert not engine.is_alive
    await engine.shutdown()
    log = capfd.readouterr().err
    assert "child: the engine has stopped after an error" in log
    assert "Traceback" in log


async def test_an_engine_that_cannot_be_closed_in_order_ends_all_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    engine = await start_process("not closing")
    await asyncio.wait_for(engine.shutdown(), PATIENCE_S)
    assert "child: the engine could not be closed in order" in capfd.readouterr().err


async def test_an_idle_engine_that_has_lost_a_rank_is_not_alive() -> None:
    engine = await start_process("losing a rank")
    assert engine.is_alive
    await until_dead(engine)
    await engine.shutdown()


async def test_signals_of_the_group_disturb_no_answer(slow: AsyncEngine) -> None:
    params = replace(GREEDY, max_tokens=30)
    stream = slow.generate(PROMPT, params)
    token_ids = list((await anext(stream)).token_ids)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(the_child(), number)
    async for delta in stream:
        token_ids += delta.token_ids
    assert token_ids == continuation(PROMPT, params)


async def test_shutdown_aborts_what_does_not_finish_in_time(slow: AsyncEngine) -> None:
    stream = slow.generate(PROMPT, FOREVER)
    await anext(stream)
    await slow.shutdown(drain_s=0.05)
    assert [delta async for delta in stream][-1].finish_reason == "abort"


@pytest.mark.parametrize("model", ["slow", "stuck", "endless"])
def test_the_engine_ends_with_its_parent(model: str) -> None:
    """Whether a step runs, hangs, or the model is still loading."""
    program = f"""
import asyncio, os
from tests.engine.fake_engine_process import start_process
from tests.engine.test_engine_process import FOREVER, PROMPT, children
async def main():
    if {model!r} == "endless":
        starting = asyncio.create_task(start_process({model!r}))
        await asyncio.sleep(0)
    else:
        engine = await start_process({model!r})
        stream = engine.generate(PROMPT, FOREVER)
        await asyncio.sleep(0.2)
    print(*children(), flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    time.sleep(1.0 if model == "endless" else 0.0)  # it imports its modules first
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and not _is_zombie(child):
        assert time.monotonic() < deadline, "the engine's process has outlived its parent"
        time.sleep(0.01)


def _is_zombie(pid: int) -> bool:
    """Where no process reaps orphans, the dead ones stay."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_messages_come_back_equal() -> None:
    params = SamplingParams(
        logit_bias={3: -1.5}, stop=("\ud800", "\u00e9"), seed=2**64 - 1, thoughts=ThoughtTags("<a>", "</a>", True)
    )
    messages = (Add("a", (1, 2), params, (3,), bytes(range(256))), Abort("b"), Picture(7, 8), Drain(), Stop())
    language = to_child()
    for message in messages:
        encoded = language.encode(message)
        size, number = HEAD.unpack_from(encoded)
        assert size == len(encoded) - HEAD.size
        assert language.decode(number, encoded[HEAD.size :]) == message


def test_memory_of_a_device_that_is_short_counts_as_memory() -> None:
    class OutOfMemoryError(RuntimeError):
        """Torch's has this name."""

    message = LoadError.of(OutOfMemoryError("CUDA out of memory"))
    assert type(message.as_exception()) is MemoryError
    assert type(LoadError.of(FileNotFoundError(2, "No such file", "x")).as_exception()) is OSError
