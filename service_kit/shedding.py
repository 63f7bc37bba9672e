"""Refuses new work at once while the event loop is behind, so that a refusal does not wait behind work.

A service that gets more requests than it can even refuse in the ordinary way builds a queue in its event loop: every
answer then waits for all requests before it. Here a request for new work costs a tenth of that when the loop is behind,
so the queue stays short. Requests that belong to accepted work (events, votes, heartbeats, probes) pass.

The time for which the loop's thread waited for a processor does not count: on a busy machine it would make every burst
of a few requests look like a flood, though there is little work.
"""

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from service_kit.retry_after import RetryAfter
from wire.errors import ApiError, ErrorCode

LAG_S = 0.005  #: the loop is behind when a timer is late by more than this
MIN_ARRIVALS = 16  #: and more requests than this came meanwhile: a burst of one client is no flood
_TICK_S = 0.005

_ERROR = ApiError(ErrorCode.OVERLOADED, "There are more requests than can be answered now. Try again in a moment.")
_BODY = _ERROR.body().model_dump_json().encode()
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]


class ProcessorWaits:
    """For how long the thread that asks first has waited for a processor. Linux counts it; where its /proc has no such
    file, it is 0."""

    def __init__(self) -> None:
        self._file: int | None = None

    def __call__(self) -> float:
        """Seconds since the thread began."""
        if self._file is None:
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            try:
                self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        counts = os.pread(self._file, 64, 0).split()  # running, waiting to run, turns; 1 us
        return int(counts[1]) / 1e9 if len(counts) == 3 else 0.0


class Shedding:
    """ASGI middleware: answers 503 OVERLOADED for it while the loop is behind. Runs on the event loop."""

    def __init__(
        self, app: ASGIApp, is_new_work: Callable[[Scope], bool], waited: Callable[[], float] | None = None
    ) -> None:
        """waited: seconds for which the loop's thread has waited for a processor; None: as the system says."""
        self._app = app
        self._is_new_work = is_new_work
        self._waited = waited or ProcessorWaits()
        self._waited_before = 0.0  #: when that timer was set
        self._retry_after = RetryAfter()
        self._due: float | None = None  #: of the timer under way, by time.monotonic(); None when there is none
        self._num_arrivals = 0  #: since that timer was set

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and self._is_new_work(scope):
            if self._is_behind():
                self._retry_after.refused()
                await self._refuse(send)
                return
            self._retry_after.accepted()
        await self._app(scope, receive, send)

    def _is_behind(self) -> bool:
        """Whether the timer that an earlier request has set is late. There are no timers without requests."""
        now = time.monotonic()  # uvloop's loop.time() stands still while callbacks run
        if self._due is None:
            self._due, self._num_arrivals, self._waited_before = now + _TICK_S, 0, self._waited()
            asyncio.get_running_loop().call_later(_TICK_S, self._on_tick)
        self._num_arrivals += 1
        if self._num_arrivals <= MIN_ARRIVALS or now - self._due <= LAG_S:
            return False
        return now - self._due - (self._waited() - self._waited_before) > LAG_S

    def _on_tick(self) -> None:
        self._due = None

    async def _refuse(self, send: Send) -> None:
        retry_after = b"%d" % math.ceil(self._retry_after.seconds())
        await send(
            {"type": "http.response.start", "status": 503, "headers": [*_HEADERS, (b"retry-after", retry_after)]}
        )
        await send({"type": "http.response.body", "body": _BODY})
