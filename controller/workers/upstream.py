"""One request to one worker: its answer as a stream of events, with a time limit on every wait.

Limits are watched by one timer a stream, which moves on when it fires and not at each token. Knows no replica, no
battle and no client: closing the iterator before its end closes the connection, at which the worker aborts. After the
end the connection is kept for the next request.
"""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import aiohttp

from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.worker_http import WorkerHttp
from wire.chat import FinishReason, Usage
from wire.errors import STATUS, ApiError, ErrorCode
from wire.sse import SseDecoder, SseEvent
from wire.workers import GenerateDelta, GenerateFailed, GenerateFinished, GenerateRequest

GENERATE_PATH = "/internal/generate"
LAST_BYTES_S = 1.0  #: a connection is kept if the end of its response comes so soon after the answer's
VANISHED_S = 1.0  #: a worker that has been silent and without a lease for so long is given up
MAX_REFUSAL_BYTES = 100_000

#: A worker that answers with these is alive and has said no: elsewhere there may be room.
_BUSY = {ErrorCode.QUEUE_FULL, ErrorCode.RATE_LIMITED, ErrorCode.SHUTTING_DOWN, ErrorCode.STALE_EPOCH}
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker has accepted the request."""


@dataclass(frozen=True, slots=True)
class Delta:
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    finish_reason: FinishReason
    usage: Usage


AnswerEvent = Opened | Delta | Finished


class Trouble(Exception):
    """This attempt is over; another replica may do better. `blame` says whether the worker is at fault, `no_listener`
    that nobody listens at its address."""

    def __init__(
        self,
        code: ErrorCode,
        reason: str,
        *,
        blame: bool,
        no_listener: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.blame = blame
        self.no_listener = no_listener
        self.retry_after_s = retry_after_s


@dataclass(eq=False, slots=True)
class _Wait:
    """One request's wait for its worker. `deadline` is in loop time, infinite while it waits for its reader instead;
    `give_up` ends the wait, and `verdict` then says why."""

    worker: Worker
    deadline: float
    give_up: Callable[[], None]
    verdict: Trouble | None = None
    missing_since: float | None = None  #: when its worker was first seen without a lease
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def end(self, verdict: Trouble) -> None:
        self.verdict = verdict
        self.give_up()


class Upstream:
    """Owns the waits for workers."""

    def __init__(
        self,
        workers: WorkerHttp,
        table: RoutingTable,
        *,
        first_token_timeout_s: float,
        token_timeout_s: float,
    ) -> None:
        self._workers = workers
        self._table = table
        self._first_token_timeout_s = first_token_timeout_s
        self._token_timeout_s = token_timeout_s
        self._waits: set[_Wait] = set()
        table.on_refresh(self._give_up_vanished)

    async def attempt(self, worker: Worker, request: GenerateRequest) -> AsyncGenerator[AnswerEvent, None]:
        """Opened, deltas and Finished. Raises Trouble, or ApiError where the request itself is at fault."""
        loop = asyncio.get_running_loop()
        body = request.model_dump_json(exclude_none=True).encode()
        limit = asyncio.timeout(None)
        wait = _Wait(worker, loop.time() + self._first_token_timeout_s, lambda: limit.reschedule(loop.time()))
        self._watch(wait)
        try:
            async with limit:
                response = await self._post(worker, body)
            wait.give_up, is_whole = response.close, False
            try:
                if response.status != 200:
                    raise await _refusal(response)
                wait.deadline = math.inf
                yield Opened()
                async with aclosing(self._events(wait, response.content)) as events:
                    async for event in events:
                        is_whole = isinstance(event, Finished)
                        yield event
            finally:
                if is_whole:  # at the end of the response, if that comes in time, aiohttp takes the connection back
                    loop.call_later(LAST_BYTES_S, response.close)
                else:
                    response.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise wait.verdict or _broken(error) from None
        finally:
            self._forget(wait)

    async def _post(self, worker: Worker, body: bytes) -> aiohttp.ClientResponse:
        url = worker.url + GENERATE_PATH
        try:
            return await self._workers.session.post(url, data=body, headers=_HEADERS, allow_redirects=False)
        except aiohttp.ServerDisconnectedError:  # a kept connection may have been closed just as it was taken
            return await self._workers.session.post(url, data=body, headers=_HEADERS, allow_redirects=False)

    async def _events(self, wait: _Wait, content: aiohttp.StreamReader) -> AsyncGenerator[AnswerEvent, None]:
        loop = asyncio.get_running_loop()
        decoder = SseDecoder()
        next_seq = 0
        wait.deadline = loop.time() + self._first_token_timeout_s
        while chunk := await content.readany():
            for event in decoder.feed(chunk):
                parsed = _parse(event)
                if parsed is None:
                    continue
                wait.deadline = math.inf  # from here to the next read it is the reader that is waited for
                if isinstance(parsed, GenerateFinished):
                    yield Finished(parsed.finish_reason, parsed.usage)
                    return
                if parsed.seq != next_seq:
                    raise Trouble(ErrorCode.WORKER_FAILED, "a delta is missing", blame=True)
                next_seq += 1
                yield Delta(parsed.text, parsed.token_ids)
                wait.deadline = loop.time() + self._token_timeout_s
        raise wait.verdict or Trouble(ErrorCode.WORKER_FAILED, "stream ended without an end", blame=True)

    def _watch(self, wait: _Wait) -> None:
        """Look when a token could be late at the earliest, and at the deadline where that comes first."""
        loop = asyncio.get_running_loop()
        self._waits.add(wait)
        due = min(wait.deadline, loop.time() + self._token_timeout_s)
        wait.timer = loop.call_at(due, self._on_timer, wait)

    def _on_timer(self, wait: _Wait) -> None:
        if wait.deadline > asyncio.get_running_loop().time():
            self._watch(wait)
        else:
            wait.end(Trouble(ErrorCode.WORKER_TIMEOUT, "no token in time", blame=True))

    def _forget(self, wait: _Wait) -> None:
        self._waits.discard(wait)
        if wait.timer is not None:
            wait.timer.cancel()

    def _give_up_vanished(self) -> None:
        """After each look at the registry: whoever waits for a worker that lost its lease waits no longer."""
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            if wait.verdict is not None or wait.deadline == math.inf or self._table.has_lease(wait.worker):
                wait.missing_since = None
            elif wait.missing_since is None:
                wait.missing_since = now
            elif now - wait.missing_since > VANISHED_S:
                wait.end(Trouble(ErrorCode.WORKER_FAILED, "worker vanished", blame=True))


def _parse(event: SseEvent) -> GenerateDelta | GenerateFinished | None:
    try:
        match event.event:
            case "delta":
                return GenerateDelta.model_validate_json(event.data)
            case "finished":
                return GenerateFinished.model_validate_json(event.data)
            case "failed":
                detail = GenerateFailed.model_validate_json(event.data).error
            case _:
                return None
    except ValueError:
        raise Trouble(ErrorCode.WORKER_FAILED, "an event is not understood", blame=True) from None
    raise _classified(ApiError.from_body({"error": detail.model_dump()}))


def _broken(error: Exception) -> Trouble:
    no_listener = isinstance(error, aiohttp.ClientConnectorError)
    what = "no connection" if no_listener else "connection broke"
    return Trouble(ErrorCode.WORKER_FAILED, f"{what}: {type(error).__name__}", blame=True, no_listener=no_listener)


async def _refusal(response: aiohttp.ClientResponse) -> Exception:
    """What a worker's answer other than 200 means."""
    body = bytearray()
    try:
        while len(body) < MAX_REFUSAL_BYTES and (chunk := await response.content.readany()):
            body += chunk
        error = ApiError.from_body(json.loads(body))
    except (ValueError, aiohttp.ClientError):
        error = ApiError(ErrorCode.INTERNAL_ERROR, "The worker gave no reason.")
    if response.status in (429, 503) and error.code not in _BUSY:
        error = ApiError(ErrorCode.QUEUE_FULL, error.message)
    retry_after = response.headers.get("Retry-After", "")
    return _classified(error, float(retry_after) if retry_after.isdecimal() else None)


def _classified(error: ApiError, retry_after_s: float | None = None) -> Exception:
    if error.code in _BUSY:
        return Trouble(ErrorCode.QUEUE_FULL, error.code.value, blame=False, retry_after_s=retry_after_s or 2.0)
    if STATUS[error.code] in (400, 413):
        return error
    code = ErrorCode.WORKER_TIMEOUT if error.code is ErrorCode.WORKER_TIMEOUT else ErrorCode.WORKER_FAILED
    return Trouble(code, error.code.value, blame=True)
