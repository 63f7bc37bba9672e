"""Answers in shapes that are lists of blocks (`/v1/responses`, `/v1/messages`), streamed or whole."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from service_kit.event_stream import EventStream, until_disconnect
from wire.answer_blocks import encode_event
from wire.answers import Delta, Finished
from wire.chat import FinishReason, Usage
from wire.errors import ApiError
from wire.openai.names import Names

Event = dict[str, Any]


class ShapedAnswer(Protocol):
    """One answer in the shape of its API. The order is begin, push (any number of times), then finish or fail."""

    @property
    def whole(self) -> dict[str, Any]:
        """The object that the answer is once it is finished."""
        ...

    def begin(self, first: Delta | Finished) -> Iterator[Event]:
        """The events that open a stream. `first` is pushed afterwards."""
        ...

    def push(self, delta: Delta) -> Iterator[Event]:
        """The events of one piece."""
        ...

    def finish(self, reason: FinishReason, usage: Usage) -> Iterator[Event]:
        """The last events."""
        ...

    def fail(self, error: ApiError) -> Iterator[Event]:
        """The last event of an answer that broke off."""
        ...


async def respond(
    request: Request,
    events: AsyncGenerator[Delta | Finished, None],
    answer: ShapedAnswer,
    names: Names,
    *,
    stream: bool,
    stall_s: float,
) -> Response:
    """The answer to `request`; `events` are closed in every case. Raises ApiError, for a stream only before its first
    event. `names`: of the fields of errors."""
    if stream:
        return EventStream(_stream(events, answer, names), begins_with_event=True, stall_s=stall_s)
    async with aclosing(events):
        with names.of_the_client():
            return JSONResponse(await until_disconnect(request, _whole(events, answer)))


async def _whole(events: AsyncGenerator[Delta | Finished, None], answer: ShapedAnswer) -> dict[str, Any]:
    async for event in events:
        _take(answer, event)
    return answer.whole


async def _stream(
    events: AsyncGenerator[Delta | Finished, None], answer: ShapedAnswer, names: Names
) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        with names.of_the_client():
            event: Delta | Finished | None = await anext(events)
        assert event is not None
        yield _encoded(list(answer.begin(event)))
        try:
            while event is not None:
                encoded = _encoded(_take(answer, event))
                if encoded:
                    yield encoded
                event = await anext(events, None)
        except ApiError as error:
            yield _encoded(list(answer.fail(error)))


def _take(answer: ShapedAnswer, event: Delta | Finished) -> list[Event]:
    if isinstance(event, Finished):
        return list(answer.finish(event.finish_reason, event.usage))
    return list(answer.push(event))


def _encoded(events: Sequence[Event]) -> bytes:
    return b"".join(encode_event(event) for event in events)
