"""One request to one worker: its answer as a stream of events, with a time limit on every wait.

One timer per stream checks the limits. It is set again when it fires, not at each token. Knows no replica, no battle
and no client: closing the iterator before its end closes the connection, and the worker then aborts. After the end the
connection is kept for the next request.
"""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.worker_http import WorkerHttp
from service_kit.request_ids import forwarded_id
from wire.answers import Delta, Finished, most_chars
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import STATUS, ApiError, Blame, ErrorCode
from wire.sse import SseDecoder, SseEvent
from wire.workers import GenerateDelta, GenerateFailed, GenerateFinished, GenerateRequest

GENERATE_PATH = "/internal/generate"
EMBED_PATH = "/internal/embed"
LAST_BYTES_S = 1.0  #: the connection is kept if its response ends within this time after the answer
VANISHED_S = 1.0  #: a request is given up when its worker has been silent and unregistered for this long
#: Without the store no worker could renew its registration: after such a pause all get this time to register again.
CALM_S = 5.0
PAUSE_S = 1.5  #: a longer time between two refreshes is a pause
MAX_REFUSAL_BYTES = 100_000

#: A worker that answers with these is healthy and refuses the request: another replica may accept it.
_BUSY = {
    ErrorCode.QUEUE_FULL,
    ErrorCode.BUDGET_REACHED,
    ErrorCode.RATE_LIMITED,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.STALE_EPOCH,
}
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker has accepted the request."""


AnswerEvent = Opened | Delta | Finished


class Trouble(Exception):
    """This attempt failed; another replica may succeed.

    `code` and `message` are what the client gets when no replica does, `reason` is for logs. `blame`: the worker is at
    fault, which counts for its circuit. `no_listener`: its address refused the connection. `is_cut`: the connection was
    lost, so the worker's process may have ended.
    """

    def __init__(
        self,
        code: ErrorCode,
        reason: str,
        *,
        blame: bool,
        no_listener: bool = False,
        is_cut: bool = False,
        retry_after_s: float | None = None,
        message: str = "",
    ) -> None:
        """message: empty: as the code says."""
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.blame = blame
        self.no_listener = no_listener
        self.is_cut = is_cut
        self.retry_after_s = retry_after_s
        self.message = message


@dataclass(eq=False, slots=True)
class _Wait:
    """The current wait of one request for its worker."""

    worker: Worker
    deadline: float  #: in loop time; infinite while the stream waits for its reader and not for the worker
    give_up: Callable[[], None]  #: ends the wait; `verdict` says why
    verdict: Trouble | None = None
    is_whole: bool = False  #: the answer is complete
    missing_since: float | None = None  #: loop time since which the worker has been silent and unregistered
    seen_deadline: float = 0.0  #: `deadline` at the last refresh of the routing table: it moves with every token
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def end(self, verdict: Trouble) -> None:
        self.verdict = verdict
        self.give_up()


class Upstream:
    """Owns the waits for workers and their timers. Runs on the event loop."""

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
        self._refreshed_at = math.inf  #: loop time of the last refresh of the routing table
        self._calm_at = 0.0  #: loop time before which no worker counts as vanished
        table.on_refresh(self._give_up_vanished)

    async def attempt(self, worker: Worker, request: GenerateRequest) -> AsyncGenerator[AnswerEvent, None]:
        """Opened, deltas and Finished. Raises Trouble, or ApiError where the request itself is at fault."""
        body = request.model_dump_json(exclude_none=True, exclude_defaults=True).encode()
        max_tokens = request.sampling.max_tokens or worker.card.context_length
        num_left = request.num_samples * most_chars(max_tokens)
        async with self._accepted(worker, body) as (wait, response):
            yield Opened()
            async with aclosing(self._events(wait, response.content)) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        num_left -= event.num_chars
                        if num_left < 0:
                            raise Trouble(ErrorCode.WORKER_FAILED, "the answer is too long", blame=False)
                    yield event

    async def embed(self, worker: Worker, request: EmbedRequest) -> EmbedReply:
        """Vectors of a worker. Raises Trouble, or ApiError where the request itself is at fault."""
        body = request.model_dump_json(exclude_none=True).encode()
        async with self._accepted(worker, body, EMBED_PATH) as (wait, response):
            wait.deadline = asyncio.get_running_loop().time() + self._token_timeout_s
            try:
                reply = EmbedReply.model_validate_json(await response.read())
            except ValueError:
                raise Trouble(ErrorCode.WORKER_FAILED, "the vectors are not understood", blame=True) from None
            wait.is_whole = True
            return reply

    @asynccontextmanager
    async def _accepted(
        self, worker: Worker, body: bytes, path: str = GENERATE_PATH
    ) -> AsyncGenerator[tuple[_Wait, aiohttp.ClientResponse], None]:
        """The response of a worker that accepted the request. Errors of the connection become Trouble."""
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        wait = _Wait(worker, loop.time() + self._first_token_timeout_s, lambda: limit.reschedule(loop.time()))
        self._watch(wait)
        try:
            async with limit:
                response = await self._post(worker, body, path)
            wait.give_up = response.close
            try:
                if response.status != 200:
                    raise await _refusal(response)
                wait.deadline = math.inf
                yield wait, response
            finally:
                _release(response, wait.is_whole)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise wait.verdict or _broken(error) from None
        finally:
            self._forget(wait)

    async def _post(self, worker: Worker, body: bytes, path: str) -> aiohttp.ClientResponse:
        url, headers = worker.url + path, {**_HEADERS, **forwarded_id()}
        try:
            return await self._workers.session.post(url, data=body, headers=headers, allow_redirects=False)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError):
                raise
            # A kept connection was closed or reset before or at the moment of its use: no fault of the worker.
            return await self._workers.session.post(url, data=body, headers=headers, allow_redirects=False)

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
                wait.deadline = math.inf  # until the next read the stream waits for its reader
                if isinstance(parsed, GenerateFinished):
                    wait.is_whole = True
                    yield parsed.finished()
                    return
                if parsed.seq != next_seq:
                    raise Trouble(ErrorCode.WORKER_FAILED, "a delta is missing", blame=True)
                next_seq += 1
                yield parsed.delta()
                wait.deadline = loop.time() + self._token_timeout_s
        raise wait.verdict or Trouble(ErrorCode.WORKER_FAILED, "stream ended without an end", blame=True, is_cut=True)

    def _watch(self, wait: _Wait) -> None:
        """Set the timer to the earliest time at which a token can be late, or to the deadline if that is sooner."""
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
        """After each refresh of the routing table: end the waits for silent workers whose registration has expired."""
        now = asyncio.get_running_loop().time()
        if now - self._refreshed_at > PAUSE_S:
            self._calm_at = now + CALM_S
        self._refreshed_at = now
        for wait in self._waits:
            has_spoken = wait.deadline != wait.seen_deadline
            wait.seen_deadline = wait.deadline
            if wait.verdict is not None or wait.deadline == math.inf or self._table.is_registered(wait.worker):
                wait.missing_since = None
            elif wait.missing_since is None or has_spoken:
                wait.missing_since = now
            elif now - wait.missing_since > VANISHED_S and now >= self._calm_at:
                wait.end(Trouble(ErrorCode.WORKER_FAILED, "worker vanished", blame=True, is_cut=True))


def _release(response: aiohttp.ClientResponse, is_whole: bool) -> None:
    """Close the connection, or let aiohttp keep it: it does so when the response ends, which must come in time."""
    if is_whole:
        asyncio.get_running_loop().call_later(LAST_BYTES_S, response.close)
    else:
        response.close()


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
    reason = f"{what}: {type(error).__name__}"
    return Trouble(ErrorCode.WORKER_FAILED, reason, blame=True, no_listener=no_listener, is_cut=True)


async def _refusal(response: aiohttp.ClientResponse) -> Exception:
    """The error for an answer of a worker with a status other than 200."""
    body = bytearray()
    try:
        while len(body) < MAX_REFUSAL_BYTES and (chunk := await response.content.readany()):
            body += chunk
        error = ApiError.from_body(json.loads(body))
    except (ValueError, aiohttp.ClientError):
        error = ApiError(ErrorCode.INTERNAL_ERROR, "The worker gave no reason.")
    if response.status in (429, 503) and error.code not in (*_BUSY, ErrorCode.MODEL_ASLEEP):
        error = ApiError(ErrorCode.QUEUE_FULL, error.message, reason=error.reason)
    retry_after = response.headers.get("Retry-After", "")
    return _classified(error, float(retry_after) if retry_after.isdecimal() else None)


def _classified(error: ApiError, retry_after_s: float | None = None) -> Exception:
    reason = error.code.value if error.reason is None else f"{error.code.value}: {error.reason}"
    if error.code is ErrorCode.MODEL_ASLEEP:
        return Trouble(error.code, reason, blame=False, retry_after_s=retry_after_s or 5.0)
    if error.code in _BUSY:
        return Trouble(ErrorCode.QUEUE_FULL, reason, blame=False, retry_after_s=retry_after_s or 2.0)
    if STATUS[error.code] in (400, 413):
        error.reason = None  # for logs only
        return error
    code = ErrorCode.WORKER_TIMEOUT if error.code is ErrorCode.WORKER_TIMEOUT else ErrorCode.WORKER_FAILED
    # What a worker says of its own failures may name its internals. What it says of a host's is written for clients.
    message = "" if error.blame is None else error.message
    return Trouble(code, reason, blame=error.at_fault is Blame.WORKER, message=message)
