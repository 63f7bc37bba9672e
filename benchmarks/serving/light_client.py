"""An HTTP client that costs the machine little: requests are bytes made once, answers are read by httptools.

A load generator on the machine of the service must not take the processor from it: this one needs a tenth of aiohttp's
time for a request.
"""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import httptools


@dataclass
class Answer:
    """One answer. `status` is 0 when the connection broke before its end."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


def encode_post(host: str, path: str, body: bytes) -> bytes:
    """A POST of JSON as it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class LightClient:
    """Keeps connections to one address and sends each request on an idle one, or on a new one."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._idle: list[_Connection] = []

    async def send(self, request: bytes) -> Answer:
        """The answer to `request`, made by `encode_post`. Raises OSError if no connection could be opened."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                break
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, self._host, self._port)
        answer = await connection.send(request)
        if answer.status and not connection.is_closed:
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.is_closed = False
        self._transport: asyncio.Transport
        self._answer = Answer()
        self._parser: httptools.HttpResponseParser
        self._waiting: asyncio.Future[Answer] | None = None

    async def send(self, request: bytes) -> Answer:
        self._answer = Answer()
        if self.is_closed:
            return self._answer
        self._parser = httptools.HttpResponseParser(self)
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._end(Answer())

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._answer.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._answer.body += body

    def on_message_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()
        self.is_closed = not self._parser.should_keep_alive()
        self._end(self._answer)

    def _end(self, answer: Answer) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)
