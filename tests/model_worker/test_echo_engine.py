import asyncio
from contextlib import aclosing

import pytest

from model_worker.echo_engine import EchoEngine
from model_worker.engine_protocol import Accepted, Conversation, Piece
from wire.answers import Delta, Finished
from wire.chat import ChatMessage, SamplingOptions
from wire.errors import ApiError, ErrorCode

SAID = Conversation((ChatMessage(role="user", content="the quick brown fox"),))


async def collect(engine: EchoEngine, text: str = "the quick brown fox", **options: object) -> list[Piece]:
    resume = options.pop("resume_token_ids", ())
    prompt = engine.tokenise(Conversation((ChatMessage(role="user", content=text),)))
    sampling = SamplingOptions.model_validate(options)
    stream = engine.generate(prompt, sampling, request_id="r", resume_token_ids=resume)  # type: ignore[arg-type]
    return [piece async for piece in stream]


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Delta))


def ids_of(pieces: list[Piece]) -> tuple[int, ...]:
    return tuple(token_id for piece in pieces if isinstance(piece, Delta) for token_id in piece.token_ids)


async def test_answer_repeats_the_last_message() -> None:
    pieces = await collect(EchoEngine(tokens_per_s=1e6))
    assert isinstance(pieces[0], Accepted)
    assert text_of(pieces) == "the quick brown fox"
    finished = pieces[-1]
    assert isinstance(finished, Finished)
    assert finished.finish_reason == "stop"
    assert finished.usage.completion_tokens == 4


async def test_line_breaks_survive() -> None:
    assert text_of(await collect(EchoEngine(tokens_per_s=1e6), "a\n\nb  c\n")) == "a\n\nb  c\n"


async def test_token_limit_ends_the_answer_with_length() -> None:
    pieces = await collect(EchoEngine(tokens_per_s=1e6), max_tokens=2)
    assert text_of(pieces) == "the quick"
    assert pieces[-1] == Finished(finish_reason="length", usage=pieces[-1].usage)  # type: ignore[union-attr]


async def test_stop_string_is_not_part_of_the_answer() -> None:
    assert text_of(await collect(EchoEngine(tokens_per_s=1e6), stop="brown")) == "the quick "


@pytest.mark.parametrize("num_emitted", [0, 1, 3, 4])
async def test_resumed_answer_goes_on_where_it_broke_off(num_emitted: int) -> None:
    whole = await collect(EchoEngine(tokens_per_s=1e6))
    rest = await collect(EchoEngine(tokens_per_s=1e6), resume_token_ids=ids_of(whole)[:num_emitted])
    assert ids_of(rest) == ids_of(whole)[num_emitted:]
    assert rest[-1] == whole[-1]


async def test_resuming_with_foreign_tokens_is_refused() -> None:
    with pytest.raises(ApiError) as refusal:
        await collect(EchoEngine(tokens_per_s=1e6), resume_token_ids=(1, 2, 3))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


async def test_prompt_beyond_the_context_is_refused() -> None:
    with pytest.raises(ApiError) as refusal:
        await collect(EchoEngine(context_length=4))
    assert refusal.value.code is ErrorCode.CONTEXT_LENGTH_EXCEEDED


async def test_full_queue_refuses_and_everything_is_given_back() -> None:
    engine = EchoEngine(tokens_per_s=200, max_running=1, max_queued=1)
    results = await asyncio.gather(*(collect(engine) for _ in range(4)), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["ApiError", "ApiError", "list", "list"]
    load = engine.load()
    assert (load.running, load.waiting, load.queued_tokens, load.kv_bytes_used) == (0, 0, 0, 0)


async def test_leaving_a_stream_frees_its_pages() -> None:
    engine = EchoEngine(tokens_per_s=1e4)
    async with aclosing(
        engine.generate(engine.tokenise(SAID), SamplingOptions(ignore_eos=True, max_tokens=1000), request_id="r")
    ) as stream:
        assert isinstance(await anext(stream), Accepted)
        await anext(stream)
        assert engine.load().kv_bytes_used > 0
    assert engine.load().kv_bytes_used == 0
    assert engine.load().running == 0


async def test_answer_breaks_off_on_demand() -> None:
    with pytest.raises(ApiError) as failure:
        await collect(EchoEngine(tokens_per_s=1e6, fail_after=2))
    assert failure.value.code is ErrorCode.WORKER_FAILED
