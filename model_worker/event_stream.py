"""Sends an answer to a client that may leave or stop reading at any time.

A disconnect is noticed at once, not at the next token, and ends the work: it is cancelled and its generator closed,
which aborts the request in the engine.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from model_worker.engine_protocol import Piece
from wire.sse import KEEP_ALIVE

T = TypeVar("T")

_KEEP_ALIVE_S = 10.0


class EventStream(Response):
    """A stream of encoded server-sent events. Owns `events` and the answer they are made from: closes both in every
    case, even if not one byte could be sent."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes, None], answer: AsyncGenerator[Piece, None], *, slow_client_s: float
    ) -> None:
        # X-Accel-Buffering: proxies like nginx must pass events on as they come.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._answer = answer
        self._slow_client_s = slow_client_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._answer), aclosing(self._events):
            await while_connected(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async def write(body: bytes, more_body: bool = True) -> None:
            async with asyncio.timeout(self._slow_client_s):
                await send({"type": "http.response.body", "body": body, "more_body": more_body})

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        alive = asyncio.create_task(_keep_alive(write))
        try:
            async for event in self._events:
                await write(event)
            await write(b"", more_body=False)
        except (TimeoutError, OSError):
            return  # the client stopped reading, or has gone
        finally:
            alive.cancel()


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None if the client left first; then `work` has been cancelled and has ended."""
    task = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        leaving.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _keep_alive(write: Callable[[bytes], Awaitable[None]]) -> None:
    with contextlib.suppress(TimeoutError, OSError):
        while True:
            await asyncio.sleep(_KEEP_ALIVE_S)
            await write(KEEP_ALIVE)
