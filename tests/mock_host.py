"""A server that speaks the OpenAI protocol and misbehaves as the asked model is named. Raw HTTP over asyncio."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Write = Callable[[bytes], Awaitable[None]]

_USAGE = {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}


def chunk(reason: str | None = None, **delta: Any) -> bytes:
    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return f"data: {json.dumps(body)}\n\n".encode()


HELLO = chunk(content="hello ") + chunk(content="there")
STOP = chunk("stop")
USAGE = f"data: {json.dumps({'choices': [], 'usage': _USAGE})}\n\n".encode()
DONE = b"data: [DONE]\n\n"
OVERLOADED = b'data: {"error": {"message": "secret-model is overloaded"}}\n\n'

#: What the body of a 200 answer is, in pieces; None: the connection is then left open in silence.
STREAMS: dict[str, list[bytes | None]] = {
    "good": [HELLO + STOP + USAGE + DONE],
    "cut": [chunk(content="hello")],
    "cut-at-once": [],
    "garbage": [b"data: <html>secret-model</html>\n\n"],
    "no-usage": [HELLO + STOP + DONE],
    "empty": [chunk(role="assistant", content="") + STOP + DONE],
    "blank": [chunk(content=" \n") + STOP + DONE],
    "filtered": [chunk("content_filter", content="") + DONE],
    "no-done": [HELLO + STOP],
    "no-done-open": [HELLO + STOP, None],
    "silent": [None],
    "silent-later": [chunk(content="hello"), None],
    "error-in-stream": [OVERLOADED],
    "thoughts": [*[chunk(reasoning_content="hm ")] * 5, HELLO + STOP + DONE],
    "thoughts-only": [chunk("stop", reasoning_content="hm")],
    "deep": [b"data: " + b"[" * 200_000 + b"\n\n"],
    "half-a-character": [b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n' + STOP + DONE],
    "wordy": [chunk(content="on and on " * 50_000) + STOP + DONE],
    "long-arguments": [chunk(tool_calls=[{"function": {"name": "f", "arguments": "x" * 500_000}}]) + STOP + DONE],
    "one-line": [b"data: " + b"x" * 65_536] * 40,
    "wrong-usage": [HELLO + STOP + USAGE.replace(b"11", b"9" * 18).replace(b": 2,", b": " + b"9" * 4000 + b",") + DONE],
}
#: 64 MiB of zeros, compressed twice: less than a kilobyte.
BOMB = zlib.compress(zlib.compress(bytes(64 << 20), 1), 9)
STATUSES = {"400": 400, "401": 401, "402": 402, "403": 403, "404": 404, "429": 429, "500": 500, "503": 503, "529": 529}


@dataclass
class MockHost:
    """`requests` are the bodies, `headers` the headers of the requests so far. `failing`: how many more requests of
    the model `flaky` are refused, with `flaky_status` and `retry_after`."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    failing: int = 0
    flaky_status: int = 429
    retry_after: str | None = None
    piece_s: float = 0.0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
                }
                body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
                self.requests.append(body)
                self.headers.append(headers)
                await self._answer(body["model"], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, model: str, writer: asyncio.StreamWriter) -> None:
        if model == "flaky":
            self.failing -= 1
            model = str(self.flaky_status) if self.failing >= 0 else "good"
        if model == "redirect":
            await _send(writer, 302, b"", {"Location": "http://127.0.0.1:1/v1"})
        elif model in STATUSES:
            extra = {} if self.retry_after is None else {"Retry-After": self.retry_after}
            await _send(writer, STATUSES[model], b'{"error": {"message": "secret-model, key sk-1"}}', extra)
        elif model in ("bomb", "bomb-refused"):
            await _send(writer, 200 if model == "bomb" else 500, BOMB, {"Content-Encoding": "deflate, deflate"})
        elif model == "endless":
            await self._stream(writer, [chunk(content="on and ")] * 1_000_000)
        else:
            await self._stream(writer, STREAMS[model])

    async def _stream(self, writer: asyncio.StreamWriter, pieces: list[bytes | None]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            if piece is None:
                await writer.drain()
                await asyncio.sleep(60)
                return
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(self.piece_s)
        if not pieces or DONE not in (pieces[-1] or b""):
            raise ConnectionError  # the body is not ended as HTTP wants it
        writer.write(b"0\r\n\r\n")


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *(f"{n}: {v}" for n, v in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()


@asynccontextmanager
async def mock_host() -> AsyncIterator[MockHost]:
    """A running host; `url` is its base URL."""
    host = MockHost()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(host.handle(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    host.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield host
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
