import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.engine_protocol import Accepted, Piece, Prompt, PromptSource
from model_worker.worker import Worker
from wire.answers import Finished
from wire.chat import SamplingOptions, Usage
from wire.errors import ApiError, ErrorCode
from wire.workers import GenerateRequest

Make = Callable[..., WorkerSettings]

LONG = SamplingOptions(ignore_eos=True, max_tokens=4000)


class Unreliable(EchoEngine):
    """An echo that misbehaves in one way."""

    def __init__(self, fault: str) -> None:
        super().__init__(tokens_per_s=1e6)
        self._fault = fault

    def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
        if self._fault == "tokenise":
            raise RuntimeError("secret prompt")
        return super().tokenise(source)

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        *,
        request_id: str,
        resume_token_ids: tuple[int, ...] = (),
        cache_salt: str = "",
    ) -> AsyncGenerator[Piece, None]:
        yield Accepted()
        if self._fault == "raise":
            raise RuntimeError("secret answer")
        if self._fault == "abort":
            yield Finished(finish_reason="abort", usage=Usage(prompt_tokens=1, completion_tokens=0, total_tokens=1))


async def outcome(worker: Worker, text: str = "a b c", sampling: SamplingOptions = LONG) -> ErrorCode | str:
    try:
        async with aclosing(worker.answer(GenerateRequest(request_id="r", prompt=text, sampling=sampling))) as answer:
            async for piece in answer:
                if isinstance(piece, Finished):
                    return piece.finish_reason
    except ApiError as error:
        return error.code
    raise AssertionError("an answer ended without an end")


async def test_states_follow_one_another(make_settings: Make) -> None:
    worker = Worker(make_settings())
    assert (worker.state, worker.is_ready, worker.is_healthy()) == ("starting", False, True)
    worker.attach(EchoEngine())
    assert (worker.state, worker.is_ready) == ("ready", True)
    worker.begin_draining()
    assert (worker.state, worker.is_ready, worker.is_healthy()) == ("draining", False, True)


async def test_draining_worker_finishes_what_runs_and_refuses_the_rest(make_settings: Make, eventually: Any) -> None:
    engine = EchoEngine(tokens_per_s=20)
    worker = Worker(make_settings(), engine)
    running = asyncio.create_task(outcome(worker, "one two three four five", SamplingOptions()))
    await eventually(lambda: engine.load().running == 1)
    worker.begin_draining()
    assert await outcome(worker) is ErrorCode.SHUTTING_DOWN
    async with asyncio.timeout(30):
        await worker.wait_until_idle()
    assert await running == "stop"


async def test_answers_that_outlive_the_drain_say_that_the_worker_shut_down(make_settings: Make) -> None:
    worker = Worker(make_settings(), Unreliable("abort"))
    worker_answer = worker.answer(GenerateRequest(request_id="r", prompt="a", sampling=LONG))
    await anext(worker_answer)
    worker.begin_draining()
    with pytest.raises(ApiError) as failure:
        await anext(worker_answer)
    assert failure.value.code is ErrorCode.SHUTTING_DOWN


async def test_answer_that_takes_too_long_is_broken_off(make_settings: Make) -> None:
    engine = EchoEngine(tokens_per_s=50)
    worker = Worker(make_settings(request_timeout_s=0.1), engine)
    assert await outcome(worker) is ErrorCode.WORKER_TIMEOUT
    assert engine.load().running == 0
    assert engine.load().kv_bytes_used == 0


async def test_refusal_for_lack_of_room_comes_before_any_work(make_settings: Make, eventually: Any) -> None:
    class Counting(EchoEngine):
        num_tokenised = 0

        def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
            self.num_tokenised += 1
            return super().tokenise(source)

    engine = Counting(tokens_per_s=100, max_running=1, max_queued=1)
    worker = Worker(make_settings(), engine)
    running = [asyncio.create_task(outcome(worker)) for _ in range(2)]
    await eventually(lambda: (engine.load().running, engine.load().waiting) == (1, 1))
    assert await outcome(worker) is ErrorCode.QUEUE_FULL
    assert engine.num_tokenised == 2
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert engine.load().running == engine.load().waiting == 0


async def test_long_prompts_are_encoded_off_the_event_loop(make_settings: Make) -> None:
    import threading

    threads: list[str] = []

    class Noting(EchoEngine):
        def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
            threads.append(threading.current_thread().name)
            return super().tokenise(source)

    worker = Worker(make_settings(), Noting(tokens_per_s=1e6, context_length=100_000))
    await outcome(worker, "short", SamplingOptions(max_tokens=1))
    await outcome(worker, "word " * 5000, SamplingOptions(max_tokens=1))
    assert threads[0] == "MainThread"
    assert threads[1] != "MainThread"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("tokenise", ErrorCode.INTERNAL_ERROR),
        ("raise", ErrorCode.INTERNAL_ERROR),
        ("abort", ErrorCode.WORKER_FAILED),
        ("silence", ErrorCode.WORKER_FAILED),
    ],
)
async def test_engine_that_misbehaves_becomes_a_typed_failure(
    make_settings: Make, fault: str, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(make_settings(), Unreliable(fault))
    assert await outcome(worker) is code
    async with asyncio.timeout(30):
        await worker.wait_until_idle()


async def test_dead_engine_refuses(make_settings: Make) -> None:
    engine = EchoEngine()
    worker = Worker(make_settings(), engine)
    await engine.shutdown()
    assert await outcome(worker) is ErrorCode.WORKER_FAILED
    assert not worker.is_healthy()
