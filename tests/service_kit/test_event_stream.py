"""Streams against an ASGI server played by the test: what it receives and sends decides what happens, not a clock."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from fastapi import Request

from service_kit.errors import ClientGone
from service_kit.event_stream import EventStream, until_disconnect
from wire.sse import KEEP_ALIVE

SCOPE = {"type": "http"}


class Source:
    """Yields `parts`, then raises `error`, or waits for ever, or ends."""

    def __init__(self, *parts: bytes, error: Exception | None = None, is_endless: bool = True) -> None:
        self.is_closed = False
        self._parts = parts
        self._error = error
        self._is_endless = is_endless

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            for part in self._parts:
                yield part
            if self._error is not None:
                raise self._error
            if self._is_endless:
                await asyncio.Event().wait()
        finally:
            self.is_closed = True


class Client:
    """The server's side of one connection. It takes `num_taken` bodies and then no more."""

    def __init__(self, num_taken: int | None = None) -> None:
        self.sent: list[Any] = []
        self.has_left = asyncio.Event()
        self._num_taken = num_taken
        self._has_news = asyncio.Condition()

    async def receive(self) -> dict[str, str]:
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self._num_taken is not None and len(self.bodies) >= self._num_taken and "body" in message:
            await asyncio.Event().wait()
        async with self._has_news:
            self.sent.append(message)
            self._has_news.notify_all()

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if "body" in message]

    async def until(self, num_messages: int) -> None:
        async with asyncio.timeout(30), self._has_news:
            await self._has_news.wait_for(lambda: len(self.sent) >= num_messages)


async def serve(stream: EventStream, client: Client) -> None:
    async with asyncio.timeout(30):
        await stream(SCOPE, client.receive, client.send)


async def test_a_stream_is_a_head_its_events_and_an_end() -> None:
    client = Client()
    await serve(EventStream(Source(b"one", b"two", is_endless=False).events()), client)

    assert [message["type"] for message in client.sent] == ["http.response.start"] + ["http.response.body"] * 3
    assert client.bodies == [b"one", b"two", b""]
    assert [message["more_body"] for message in client.sent[1:]] == [True, True, False]
    headers = dict(client.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert b"content-length" not in headers


async def test_a_client_that_stops_reading_is_cut_off_and_its_source_closed() -> None:
    source = Source(b"one", b"two")
    client = Client(num_taken=1)
    await serve(EventStream(source.events(), stall_s=0.05), client)
    assert client.bodies == [b"one"]
    assert source.is_closed


async def test_a_client_that_leaves_closes_the_source_and_what_it_is_made_from() -> None:
    source, inner = Source(b"one"), Source(b"inner")
    client, inner_events = Client(), inner.events()
    await anext(inner_events)
    serving = asyncio.create_task(serve(EventStream(source.events(), source=inner_events), client))
    await client.until(2)
    client.has_left.set()
    await serving
    assert source.is_closed
    assert inner.is_closed


async def test_a_client_that_left_before_the_first_byte_closes_what_the_events_are_made_from() -> None:
    inner = Source(b"inner")
    client, inner_events = Client(), inner.events()
    await anext(inner_events)
    client.has_left.set()
    await serve(EventStream(Source().events(), source=inner_events), client)
    assert inner.is_closed


@pytest.mark.parametrize("error", [RuntimeError("bug"), TimeoutError("bug"), OSError("bug")], ids=repr)
async def test_a_source_that_raises_is_closed_and_its_error_shown(error: Exception) -> None:
    source = Source(b"one", error=error)
    with pytest.raises(type(error), match="bug"):
        await serve(EventStream(source.events()), Client())
    assert source.is_closed


async def test_a_request_that_is_cancelled_closes_the_source() -> None:
    source, client = Source(b"one"), Client()
    serving = asyncio.create_task(serve(EventStream(source.events()), client))
    await client.until(2)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert source.is_closed


async def test_a_quiet_stream_is_kept_alive() -> None:
    client = Client()
    serving = asyncio.create_task(serve(EventStream(Source(b"one").events(), keep_alive_s=0.01), client))
    await client.until(4)
    client.has_left.set()
    await serving
    assert client.bodies[:3] == [b"one", KEEP_ALIVE, KEEP_ALIVE]


async def test_a_busy_stream_has_no_comments() -> None:
    client = Client()

    async def busy() -> AsyncGenerator[bytes, None]:
        """An event in every period of the keep-alive, which begin with the stream and are counted by its clock."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        number = 0
        while loop.time() < began + 0.3:
            yield b"event %d" % (number := number + 1)
            await asyncio.sleep(0)

    await serve(EventStream(busy(), keep_alive_s=0.1), client)
    assert KEEP_ALIVE not in client.bodies


async def test_a_stream_that_waits_for_its_first_event_has_not_begun_when_it_fails_before() -> None:
    client = Client()
    with pytest.raises(RuntimeError, match="no answer"):
        await serve(EventStream(Source(error=RuntimeError("no answer")).events(), begins_with_event=True), client)
    assert client.sent == []


async def test_a_stream_that_waits_for_its_first_event_begins_with_it() -> None:
    client, may_end = Client(), asyncio.Event()

    async def events() -> AsyncGenerator[bytes, None]:
        assert client.sent == []
        yield b"one"
        await may_end.wait()
        yield b"two"

    serving = asyncio.create_task(serve(EventStream(events(), begins_with_event=True), client))
    await client.until(2)
    assert client.bodies == [b"one"]
    may_end.set()
    await serving
    assert client.bodies == [b"one", b"two", b""]


async def test_a_client_that_leaves_before_the_first_event_is_told_from_one_that_had_some() -> None:
    source, client = Source(), Client()
    client.has_left.set()
    with pytest.raises(ClientGone):
        await serve(EventStream(source.events(), begins_with_event=True), client)
    assert client.sent == []


async def test_work_ends_with_its_result_its_error_or_the_client() -> None:
    async def result() -> int:
        return 7

    async def fails() -> int:
        raise RuntimeError("bug")

    was_cancelled = False

    async def endless() -> int:
        nonlocal was_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise
        return 7

    client = Client()
    request = Request(SCOPE, client.receive)
    assert await until_disconnect(request, result()) == 7
    with pytest.raises(RuntimeError, match="bug"):
        await until_disconnect(request, fails())
    working = asyncio.create_task(until_disconnect(request, endless()))
    await asyncio.sleep(0)  # one turn of the loop, in which the work begins
    await asyncio.sleep(0)
    client.has_left.set()
    with pytest.raises(ClientGone):
        await working
    assert was_cancelled
