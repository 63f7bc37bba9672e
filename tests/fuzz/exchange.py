"""Sends one case over a connection of its own and judges the answer."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass

from tests.fuzz.case import Case

HANG_S = 1.0
LONGEST_S = 10.0  #: after which a missing answer is given up
_SHORT_S = 0.03  #: wait for an answer to bytes that may not need one
_BODY_S = 0.3  #: how long an answer is read: streams may go on
_MAX_BODY = 262_144


@dataclass(frozen=True)
class Outcome:
    """What came back. `status` is None without an answer."""

    status: int | None
    answer_s: float  #: until the head of the answer, from the last byte sent
    is_hang: bool = False  #: an answer was due and took longer than HANG_S
    is_cut: bool = False  #: the answer ended before its end
    code: str | None = None  #: of an error body

    @property
    def is_server_error(self) -> bool:
        """5xx other than a typed 503."""
        return self.status is not None and self.status >= 500 and not (self.status == 503 and self.code is not None)


async def exchange(port: int, case: Case) -> Outcome:
    """Send `case` to the service on `port`, read the answer, close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2 * _MAX_BODY)
    try:
        with contextlib.suppress(ConnectionError):
            for piece in case.pieces:
                writer.write(piece)
                await writer.drain()
        sent = time.monotonic()
        head = await _head(reader, LONGEST_S if case.is_whole else _SHORT_S)
        answer_s = time.monotonic() - sent
        if head is None:
            return Outcome(None, answer_s, is_hang=case.is_whole and answer_s > HANG_S)
        status = int(head.split(b" ", 2)[1])
        body, is_over = await _body(reader)
        is_cut = is_over and _is_cut(head, body) and not case.pieces[0].startswith(b"HEAD ")
        return Outcome(
            status,
            answer_s,
            is_hang=case.is_whole and answer_s > HANG_S,
            is_cut=case.is_whole and is_cut,
            code=_code(body) if status >= 400 else None,
        )
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader, longest_s: float) -> bytes | None:
    """The head of the first final answer; None when the connection ends or the time is over before it."""
    try:
        async with asyncio.timeout(longest_s):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 1"):
                    return head
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        return None


async def _body(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """The body as far as it comes in time, and whether the connection ended."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            while len(body) < _MAX_BODY:
                piece = await reader.read(65_536)
                if not piece:
                    return bytes(body), True
                body += piece
    except (TimeoutError, ConnectionError):
        pass
    return bytes(body), False


def _is_cut(head: bytes, body: bytes) -> bool:
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        return not body.endswith(b"0\r\n\r\n")
    length = lower.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0].strip()
    return bool(length) and len(body) < int(length) and int(lower.split(b" ", 2)[1]) not in (204, 304)


def _code(body: bytes) -> str | None:
    start = body.find(b"{")
    try:
        return str(json.loads(body[start : body.rfind(b"}") + 1])["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return None
