"""Streams of server-sent events to a client, and the end of work whose client has gone.

A client that leaves is noticed at once, not at the next event. The source of a stream is closed in every case: when it
ends, when the client leaves, and when the client stops reading. In the worker that aborts the request in the engine.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service_kit.cancellation import cancel
from service_kit.errors import ClientGone
from wire.sse import KEEP_ALIVE

STALL_S = 30.0
KEEP_ALIVE_S = 10.0

Result = TypeVar("Result")


class EventStream(Response):
    """Sends encoded server-sent events as they come. Knows nothing of their meaning.

    `events` and `source`, the generator that they are made from, are closed even if not one byte could be sent. A
    client that takes no bytes for `stall_s` is cut off. While no event comes, a comment is sent at least every
    2 * `keep_alive_s`.

    With `begins_with_event` the response begins with the first event: an error before it is raised to the caller and
    can still have a status of its own, as can a client that leaves before it (ClientGone). The first event is then sent
    without another turn of the event loop: where all cores compute, each turn waits for a core.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        source: AsyncGenerator[Any, None] | None = None,
        begins_with_event: bool = False,
        stall_s: float = STALL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        # X-Accel-Buffering: proxies like nginx must pass events on as they come.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._source = source
        self._begins_with_event = begins_with_event
        self._stall_s = stall_s
        self._keep_alive_s = keep_alive_s
        self._has_begun = False
        self._is_quiet = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: returns when the stream has ended or the client has gone; raises what `events` raises."""
        async with AsyncExitStack() as closing:
            if self._source is not None:
                closing.push_async_callback(self._source.aclose)
            closing.push_async_callback(self._events.aclose)
            pump = asyncio.create_task(self._pump(send))
            gone = asyncio.create_task(_disconnected(receive))
            closing.push_async_callback(cancel, pump, gone)
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif self._begins_with_event and not self._has_begun:
                raise ClientGone

    async def _pump(self, send: Send) -> None:
        first = await anext(self._events, None) if self._begins_with_event else None
        self._has_begun = True
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        keeping_alive = None
        with suppress(_ClientStopped):
            try:
                if first is not None:
                    await self._send_part(send, first)
                keeping_alive = asyncio.create_task(self._keep_alive(send))
                async for part in self._events:
                    await self._send_part(send, part)
                await self._send_part(send, b"", is_last=True)
            finally:
                await cancel(keeping_alive)

    async def _send_part(self, send: Send, part: bytes, *, is_last: bool = False) -> None:
        self._is_quiet = False
        try:
            async with asyncio.timeout(self._stall_s):
                await send({"type": "http.response.body", "body": part, "more_body": not is_last})
        except (TimeoutError, OSError):
            raise _ClientStopped from None

    async def _keep_alive(self, send: Send) -> None:
        with suppress(_ClientStopped):
            while True:
                await asyncio.sleep(self._keep_alive_s)
                if self._is_quiet:
                    await self._send_part(send, KEEP_ALIVE)
                self._is_quiet = True


async def until_disconnect(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`. When the client goes first, `work` is cancelled, has ended, and ClientGone is raised."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        await cancel(task, gone)


class _ClientStopped(Exception):
    """The client takes no more bytes, or the connection is closed."""


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
