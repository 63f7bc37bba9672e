"""Requests whose head never ends, sent by hand to a real server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from service_kit.heads import MAX_HEAD_BYTES, BoundedHttp
from tests.quick_server import QuickServer

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


async def echo_length(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body, or not at all if the client goes first."""
    length = 0
    while (message := await receive())["type"] == "http.request":
        length += len(message["body"])
        if not message["more_body"]:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
            await send({"type": "http.response.body", "body": b"%8d" % length})
            return


@pytest.fixture
async def connection() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(echo_length, http=BoundedHttp, ws="none", lifespan="off", log_config=None)
        server = QuickServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        yield reader, writer
        writer.close()
        server.should_exit = server.force_exit = True
        await serving


@pytest.mark.parametrize("more", [b"a", b"a: b\r\n"], ids=["one header", "many"])
async def test_a_head_without_an_end_is_refused_before_it_fills_the_memory(connection: Any, more: bytes) -> None:
    reader, writer = connection
    writer.write(POST + b"x: " + more * (MAX_HEAD_BYTES // len(more) + 1))
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")


async def test_so_are_trailers_without_an_end_after_the_body(connection: Any) -> None:
    reader, writer = connection
    writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
    await asyncio.sleep(0.05)  # apart from the body, as a sender who means harm would
    writer.write(b"a: b\r\n" * (MAX_HEAD_BYTES // 6 + 1))
    assert await reader.read() == b""  # the connection was closed, with no answer to a request that never came


async def test_a_connection_carries_any_number_of_requests_with_bodies_of_any_size(connection: Any) -> None:
    reader, writer = connection
    padding = b"x: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n"
    for length in (0, 3, 10 * MAX_HEAD_BYTES, 5, 0):
        writer.write(POST + padding + b"Content-Length: %d\r\n\r\n" % length + b"b" * length)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert int(await reader.readexactly(8)) == length
    pieces = b"1000\r\n" + b"c" * 0x1000 + b"\r\n"
    writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n" + 20 * pieces + b"0\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    assert int(await reader.readexactly(8)) == 20 * 0x1000
