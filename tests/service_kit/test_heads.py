"""Heads, bodies and connections that never end, sent by hand to a real server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn

from service_kit.heads import MAX_HEAD_BYTES, BoundedHttp
from tests.quick_server import QuickServer

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


class EchoLength:
    """Answers with the length of the body, or not at all if the client goes first; at /refuse without reading it."""

    def __init__(self) -> None:
        self.has_received = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        length = 0
        while scope["path"] != "/refuse" and (message := await receive())["type"] == "http.request":
            length += len(message["body"])
            if length:
                self.has_received.set()
            if not message["more_body"]:
                break
        else:
            if scope["path"] != "/refuse":
                return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "body": b"%8d" % length})


@dataclass(frozen=True)
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    app: EchoLength

    async def answer(self) -> int:
        """The length that the server has seen."""
        async with asyncio.timeout(30):
            head = await self.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            return int(await self.reader.readexactly(8))

    async def until_closed(self) -> bytes:
        """What else the server sends before it closes the connection."""
        async with asyncio.timeout(30):
            return await self.reader.read()


@pytest.fixture
def patience_s() -> float:
    return 30.0


@pytest.fixture
async def connection(patience_s: float) -> AsyncIterator[Connection]:
    class Http(BoundedHttp):
        pass

    Http.patience_s = patience_s
    app = EchoLength()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=Http, ws="none", lifespan="off", log_config=None, timeout_keep_alive=30)
        server = QuickServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        yield Connection(reader, writer, app)
        writer.close()
        server.should_exit = server.force_exit = True
        await serving


async def test_trailers_without_an_end_close_the_connection(connection: Connection) -> None:
    connection.writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
    await connection.app.has_received.wait()  # the trailers come in other packets than the body
    connection.writer.write(b"a: b\r\n" * (MAX_HEAD_BYTES // 6 + 1))
    assert await connection.until_closed() == b"", "there is no answer to a request that never came"


async def test_a_connection_carries_any_number_of_requests_with_bodies_of_any_size(connection: Connection) -> None:
    padding = b"x: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n"
    for length in (0, 3, 10 * MAX_HEAD_BYTES, 5, 0):
        connection.writer.write(POST + padding + b"Content-Length: %d\r\n\r\n" % length + b"b" * length)
        assert await connection.answer() == length
    pieces = b"1000\r\n" + b"c" * 0x1000 + b"\r\n"
    connection.writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n" + 20 * pieces + b"0\r\n\r\n")
    assert await connection.answer() == 20 * 0x1000


async def test_pipelined_requests_are_answered_in_order(connection: Connection) -> None:
    requests = [POST + b"Content-Length: %d\r\n\r\n" % length + b"b" * length for length in (1, 2, 3)]
    connection.writer.write(b"".join(requests))
    assert [await connection.answer() for _ in requests] == [1, 2, 3]


@pytest.mark.parametrize("patience_s", [0.1])
async def test_a_connection_without_a_request_is_closed(connection: Connection) -> None:
    assert await connection.until_closed() == b""


@pytest.mark.parametrize("patience_s", [0.1])
async def test_a_second_head_that_stops_is_refused_too(connection: Connection) -> None:
    connection.writer.write(POST + b"Content-Length: 0\r\n\r\n")
    assert await connection.answer() == 0
    connection.writer.write(POST)
    assert (await connection.until_closed()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("patience_s", [0.3])
async def test_empty_lines_do_not_keep_a_connection_open(connection: Connection) -> None:
    connection.writer.write(POST + b"Content-Length: 0\r\n\r\n")
    assert await connection.answer() == 0
    closed = asyncio.create_task(connection.until_closed())
    while not closed.done():
        connection.writer.write(b"\r\n")
        await asyncio.sleep(0.05)
    with suppress(ConnectionResetError):  # a line that arrives at the moment of closing resets the connection
        assert closed.result() == b""


@pytest.mark.parametrize("patience_s", [0.1])
async def test_a_body_may_take_longer_than_a_head(connection: Connection) -> None:
    connection.writer.write(POST + b"Content-Length: 2\r\n\r\na")
    await connection.app.has_received.wait()
    await asyncio.sleep(0.3)  # three times the patience: nothing may happen meanwhile
    connection.writer.write(b"b")
    assert await connection.answer() == 2


@pytest.mark.parametrize("patience_s", [0.1])
async def test_a_client_that_goes_on_with_a_refused_body_is_cut_off(connection: Connection) -> None:
    connection.writer.write(b"POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"b" * 10)
    assert await connection.answer() == 0
    assert await connection.until_closed() == b""


async def test_a_client_that_sends_a_refused_body_to_its_end_reads_the_answer(connection: Connection) -> None:
    body = b"b" * 10_000_000
    connection.writer.write(b"POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(30):
        await connection.writer.drain()
    assert await connection.answer() == 0
    connection.writer.write(POST + b"Content-Length: 1\r\n\r\nb")
    assert await connection.answer() == 1, "the connection goes on"
