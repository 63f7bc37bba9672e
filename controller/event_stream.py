"""Streams of server-sent events to a client, and the end of work whose client has gone.

The source is closed for certain and at once: when it ends, when the client leaves, and when the client stops reading.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from controller.cancellation import cancel
from controller.errors import ClientGone

STALL_S = 30.0  #: a client that takes no bytes for so long is cut off

Result = TypeVar("Result")


class EventStream(StreamingResponse):
    """Sends what `events` yields. Knows nothing of their meaning.

    With `is_answer` the response begins with the first event: an error before it is raised to the caller and can still
    have a status of its own, as can a client that leaves before it (ClientGone). Nothing stands between that event and
    the client then, not even another turn of the loop: where all cores compute, each one waits for a core.
    """

    def __init__(
        self, events: AsyncGenerator[bytes, None], *, is_answer: bool = False, stall_s: float = STALL_S
    ) -> None:
        super().__init__(
            events,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._events = events
        self._stall_s = stall_s
        self._is_answer = is_answer
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif self._is_answer and not self._has_begun:
                raise ClientGone
        finally:
            await cancel(pump, gone)
            await self._events.aclose()

    async def _pump(self, send: Send) -> None:
        first = await anext(self._events, None) if self._is_answer else None
        self._has_begun = True
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(TimeoutError, OSError):
            if first is not None:
                await self._send_part(send, first)
            async for part in self._events:
                await self._send_part(send, part)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_part(self, send: Send, part: bytes) -> None:
        async with asyncio.timeout(self._stall_s):
            await send({"type": "http.response.body", "body": part, "more_body": True})


async def until_disconnect(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled when the client goes away first; then raises ClientGone."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        await cancel(task, gone)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
