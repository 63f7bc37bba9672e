"""How much one address and all visitors together may ask of the web UI: events, open streams, waiting events.

Checked before Gradio sees a request, so that a refusal costs no memory. Addresses of one IPv6 network of 64 bits count
as one.
"""

import ipaddress
import time
from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from webui import texts
from wire.errors import ApiError, ErrorCode

JOIN = "/gradio_api/queue/join"
DATA = "/gradio_api/queue/data"
BURST_S = 10.0  #: an address that was quiet may send the events of this many seconds at once


class OpenStreams:
    """The event streams that browsers hold open, by session and by address."""

    def __init__(self) -> None:
        self.by_session: Counter[str] = Counter()
        self.by_address: Counter[str] = Counter()
        self.total = 0

    def opened(self, session: str, address: str) -> None:
        """Count one more stream."""
        self.by_session[session] += 1
        self.by_address[address] += 1
        self.total += 1

    def closed(self, session: str, address: str) -> None:
        """Count one stream less; keeps no entry of a session or an address without a stream."""
        for counter, key in ((self.by_session, session), (self.by_address, address)):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]
        self.total -= 1

    def is_read(self, session: str) -> bool:
        """True while a browser holds a stream of this session open."""
        return session in self.by_session


class EventRates:
    """A token bucket for each address: `rate` events a second, those of BURST_S seconds at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(1.0, rate * BURST_S)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  #: address -> tokens, and when there were so many

    def wait_s(self, address: str) -> float:
        """Take one event of the address: 0.0, or the seconds after which there is one to take."""
        now = self._clock()
        tokens, since = self._buckets.get(address, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        if tokens < 1.0:
            return (1.0 - tokens) / self._rate
        self._buckets[address] = (tokens - 1.0, now)
        return 0.0

    async def forget_quiet(self) -> None:
        """Drop the buckets that have filled up again."""
        before = self._clock() - BURST_S
        self._buckets = {address: bucket for address, bucket in self._buckets.items() if bucket[1] > before}

    def __len__(self) -> int:
        return len(self._buckets)


class Limits:
    """ASGI middleware that refuses what is too much with a typed 429 or 503 and Retry-After.

    `num_waiting` counts events that wait for their turn.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        streams: OpenStreams,
        rates: EventRates,
        max_waiting: int,
        max_streams: int,
        max_streams_per_address: int,
        num_waiting: Callable[[], int],
    ) -> None:
        self._app = app
        self._streams = streams
        self._rates = rates
        self._max_waiting = max_waiting
        self._max_streams = max_streams
        self._max_streams_per_address = max_streams_per_address
        self._num_waiting = num_waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == JOIN:
            refusal = self._refusal_of_event(address_in(scope))
            await (self._app(scope, receive, send) if refusal is None else _refuse(refusal, scope, receive, send))
        elif path == DATA:
            await self._stream(_session(scope), address_in(scope), scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal_of_event(self, address: str) -> ApiError | None:
        if self._num_waiting() >= self._max_waiting:
            return ApiError(ErrorCode.QUEUE_FULL, texts.FAILURES[ErrorCode.QUEUE_FULL], retry_after_s=2)
        if wait_s := self._rates.wait_s(address):
            return ApiError(ErrorCode.RATE_LIMITED, texts.FAILURES[ErrorCode.RATE_LIMITED], retry_after_s=wait_s)
        return None

    async def _stream(self, session: str, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        """One event stream, counted while it is open."""
        refusal = self._refusal_of_stream(address)
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)
            return

        self._streams.opened(session, address)
        try:
            await self._app(scope, receive, send)
        finally:
            self._streams.closed(session, address)

    def _refusal_of_stream(self, address: str) -> ApiError | None:
        if self._streams.by_address[address] >= self._max_streams_per_address:
            return ApiError(ErrorCode.RATE_LIMITED, texts.FAILURES[ErrorCode.RATE_LIMITED], retry_after_s=5)
        if self._streams.total >= self._max_streams:
            return ApiError(ErrorCode.QUEUE_FULL, texts.FAILURES[ErrorCode.QUEUE_FULL], retry_after_s=5)
        return None


def _session(scope: Scope) -> str:
    values = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])
    return str(values[-1])


def address_in(scope: Scope) -> str:
    """The visitor's address, of IPv6 its network."""
    host = scope["client"][0] if scope.get("client") else "unknown"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


async def _refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """`detail` is what Gradio's page shows."""
    body = {**error.body().model_dump(), "detail": error.message}
    await JSONResponse(body, error.status, error.headers)(scope, receive, send)
