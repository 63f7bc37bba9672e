import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from controller.errors import ClientGone
from controller.event_stream import EventStream


class _Source:
    def __init__(self, *, error: Exception | None = None) -> None:
        self.is_closed = False
        self._error = error

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            if self._error is not None:
                raise self._error
            await asyncio.sleep(60)
        finally:
            self.is_closed = True


async def _never() -> Any:
    await asyncio.sleep(60)


async def _run(source: _Source, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    await asyncio.wait_for(EventStream(source.events(), stall_s=0.1)({"type": "http"}, receive, send), 30)


async def test_a_client_that_stops_reading_is_cut_off_and_its_source_closed() -> None:
    async def stuck(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    source = _Source()
    await _run(source, _never, stuck)
    assert source.is_closed


async def test_a_client_that_leaves_closes_the_source_at_once() -> None:
    async def leaves() -> dict[str, str]:
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        return

    source = _Source()
    await _run(source, leaves, send)
    assert source.is_closed


async def test_a_source_that_raises_is_closed_and_its_error_shown() -> None:
    async def send(_: Any) -> None:
        return

    source = _Source(error=RuntimeError("defect"))
    with pytest.raises(RuntimeError, match="defect"):
        await _run(source, _never, send)
    assert source.is_closed


async def test_a_request_that_is_cancelled_closes_the_source() -> None:
    async def send(_: Any) -> None:
        return

    source = _Source()
    task = asyncio.create_task(_run(source, _never, send))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert source.is_closed


async def _fails() -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(0)
    raise RuntimeError("no answer")
    yield b""


async def test_an_answer_that_fails_before_its_first_event_has_not_begun() -> None:
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    with pytest.raises(RuntimeError, match="no answer"):
        await EventStream(_fails(), is_answer=True)({"type": "http"}, _never, send)
    assert sent == []


async def test_an_answer_begins_with_its_first_event() -> None:
    sent: list[Any] = []
    may_end = asyncio.Event()

    async def events() -> AsyncGenerator[bytes, None]:
        assert sent == []
        yield b"one"
        await may_end.wait()
        yield b"two"

    async def send(message: Any) -> None:
        sent.append(message.get("body", message["type"]))
        may_end.set()

    await EventStream(events(), is_answer=True)({"type": "http"}, _never, send)
    assert sent == ["http.response.start", b"one", b"two", b""]


async def test_a_client_that_leaves_before_an_answer_is_told_from_one_that_had_some() -> None:
    is_closed = False

    async def events() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            await asyncio.sleep(60)
            yield b"one"
        finally:
            is_closed = True

    async def leaves() -> dict[str, str]:
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        return

    with pytest.raises(ClientGone):
        await EventStream(events(), is_answer=True)({"type": "http"}, leaves, send)
    assert is_closed
