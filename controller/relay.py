"""One answer from one of a model's workers, as a stream of events; another replica goes on where one fails.

Before the first token a failed request is simply sent again, after it the emitted token ids are replayed: the replica
continues them, so the text goes on byte for byte. Never falls over to another model. Knows no battle and no client:
closing the iterator closes the upstream stream, at which the worker aborts.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field

import httpx

from controller.breaker import CircuitBreaker
from controller.dispatch import Lane
from controller.logs import log_event
from controller.metrics import Metrics
from controller.routing_table import RoutingTable, Worker
from wire.chat import FinishReason, Usage
from wire.errors import STATUS, ApiError, ErrorCode
from wire.sse import SseDecoder, SseEvent
from wire.workers import GenerateDelta, GenerateFailed, GenerateFinished, GenerateRequest

GENERATE_PATH = "/internal/generate"
VANISHED_S = 1.0  #: a worker that has been silent and without a lease for so long is given up

_logger = logging.getLogger(__name__)

#: A worker that answers with these is alive and has said no: elsewhere there may be room.
_BUSY = {ErrorCode.QUEUE_FULL, ErrorCode.RATE_LIMITED, ErrorCode.SHUTTING_DOWN, ErrorCode.STALE_EPOCH}


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


RelayEvent = Opened | Delta | Finished


class _Trouble(Exception):
    """This attempt is over; another replica may do better. `blame` says whether the worker is at fault."""

    def __init__(self, code: ErrorCode, reason: str, *, blame: bool, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.blame = blame
        self.retry_after_s = retry_after_s


@dataclass(eq=False)
class _Watched:
    """A wait for bytes of a worker."""

    worker: Worker
    timeout: asyncio.Timeout
    missing_since: float | None = None  #: when its worker was first seen without a lease
    vanished: bool = False


@dataclass
class _Attempts:
    """What has been tried for one answer."""

    emitted: list[int] = field(default_factory=list)
    has_begun: bool = False  #: a delta came; it may have carried no token ids (see ModelCard.can_resume)
    tried: set[str] = field(default_factory=set)
    count: int = 1


class Relay:
    def __init__(
        self,
        client: httpx.AsyncClient,
        table: RoutingTable,
        breaker: CircuitBreaker,
        metrics: Metrics,
        *,
        first_token_timeout_s: float,
        token_timeout_s: float,
        max_attempts: int,
    ) -> None:
        self._client = client
        self._table = table
        self._breaker = breaker
        self._metrics = metrics
        self._first_token_timeout_s = first_token_timeout_s
        self._token_timeout_s = token_timeout_s
        self._max_attempts = max_attempts
        self._waits: dict[int, _Watched] = {}
        table.on_refresh(self._give_up_vanished)

    async def answer(self, lane: Lane, request: GenerateRequest) -> AsyncGenerator[RelayEvent, None]:
        """Events up to Finished, or ApiError. The lane stays the caller's to close."""
        attempts = _Attempts()
        started = time.monotonic()
        while True:
            worker = lane.worker
            try:
                resumed = request.model_copy(
                    update={"epoch": worker.epoch, "resume_token_ids": tuple(attempts.emitted)}
                )
                async with contextlib.aclosing(self._attempt(worker, resumed)) as events:
                    async for event in events:
                        if isinstance(event, Delta):
                            if not attempts.has_begun:
                                attempts.has_begun = True
                                self._metrics.first_token.observe(time.monotonic() - started)
                            attempts.emitted.extend(event.token_ids)
                        yield event
                self._breaker.succeeded((worker.worker_id, worker.epoch))
                self._metrics.streams.labels("finished").inc()
                return
            except _Trouble as trouble:
                await self._move_on(lane, attempts, trouble)
            except ApiError:
                self._metrics.streams.labels("refused").inc()
                raise
            except (asyncio.CancelledError, GeneratorExit):
                self._metrics.streams.labels("closed").inc()
                raise

    async def _move_on(self, lane: Lane, attempts: _Attempts, trouble: _Trouble) -> None:
        """Put the lane on another replica, or raise the error that ends the answer."""
        worker = lane.worker
        if trouble.blame:
            self._breaker.failed((worker.worker_id, worker.epoch))
        phase = "after_first_token" if attempts.has_begun else "before_first_token"
        log_event(
            _logger, "worker_trouble", logging.WARNING, worker=worker.worker_id, reason=trouble.reason, phase=phase
        )
        if trouble.reason == ErrorCode.STALE_EPOCH:  # it has registered anew since we looked: ask it again
            with contextlib.suppress(ApiError):
                await self._table.refresh()
        else:
            attempts.tried.add(worker.worker_id)
        attempts.count += 1
        if attempts.count > self._max_attempts or (attempts.has_begun and not worker.card.can_resume):
            raise self._final(trouble)
        try:
            await lane.move(frozenset(attempts.tried))
        except ApiError:
            raise self._final(trouble) from None
        self._metrics.failovers.labels(phase).inc()

    def _final(self, trouble: _Trouble) -> ApiError:
        self._metrics.streams.labels(trouble.code.value).inc()
        messages = {
            ErrorCode.WORKER_TIMEOUT: "The model took too long to answer.",
            ErrorCode.QUEUE_FULL: "All workers of the model are full.",
        }
        message = messages.get(trouble.code, "The model's worker failed.")
        return ApiError(trouble.code, message, retry_after_s=trouble.retry_after_s)

    async def _attempt(self, worker: Worker, request: GenerateRequest) -> AsyncGenerator[RelayEvent, None]:
        """One request to one worker: raises _Trouble, or ApiError where the request itself is at fault."""
        upstream = self._client.build_request(
            "POST",
            worker.url + GENERATE_PATH,
            content=request.model_dump_json(exclude_none=True).encode(),
            headers={"Content-Type": "application/json", "Accept": "text/event-stream"},
        )
        try:
            with self._wait(worker, self._first_token_timeout_s) as limit:
                async with limit:
                    response = await self._client.send(upstream, stream=True)
        except httpx.HTTPError as error:
            if isinstance(error, httpx.ConnectError):
                self._breaker.refused((worker.worker_id, worker.epoch), round(self._table.store_time() * 1000))
            raise _Trouble(ErrorCode.WORKER_FAILED, f"no connection: {type(error).__name__}", blame=True) from None
        try:
            if response.status_code != 200:
                raise await _refusal(response)
            yield Opened()
            async with contextlib.aclosing(self._events(worker, response)) as events:
                async for event in events:
                    yield event
        except httpx.HTTPError as error:
            raise _Trouble(ErrorCode.WORKER_FAILED, f"stream broke: {type(error).__name__}", blame=True) from None
        finally:
            await response.aclose()

    async def _events(self, worker: Worker, response: httpx.Response) -> AsyncGenerator[RelayEvent, None]:
        decoder = SseDecoder()
        chunks = response.aiter_raw()
        next_seq, limit_s = 0, self._first_token_timeout_s
        deadline = time.monotonic() + limit_s
        while True:
            with self._wait(worker, deadline - time.monotonic()) as limit:
                async with limit:
                    chunk = await anext(chunks, None)
            if chunk is None:
                raise _Trouble(ErrorCode.WORKER_FAILED, "stream ended without an end", blame=True)
            for event in decoder.feed(chunk):
                parsed = _parse(event)
                if isinstance(parsed, GenerateFinished):
                    yield Finished(parsed.finish_reason, parsed.usage)
                    return
                if parsed is None:
                    continue
                if parsed.seq != next_seq:
                    raise _Trouble(ErrorCode.WORKER_FAILED, "a delta is missing", blame=True)
                next_seq += 1
                deadline = time.monotonic() + self._token_timeout_s
                yield Delta(parsed.text, parsed.token_ids)

    @contextlib.contextmanager
    def _wait(self, worker: Worker, limit_s: float) -> Iterator[asyncio.Timeout]:
        """A time limit for one wait, which also ends when the worker has vanished from the registry."""
        limit = asyncio.timeout(max(0.0, limit_s))
        watched = _Watched(worker, limit)
        self._waits[id(watched)] = watched
        try:
            yield limit
        except TimeoutError:
            if watched.vanished:
                raise _Trouble(ErrorCode.WORKER_FAILED, "worker vanished", blame=True) from None
            raise _Trouble(ErrorCode.WORKER_TIMEOUT, "no token in time", blame=True) from None
        finally:
            del self._waits[id(watched)]

    def _give_up_vanished(self) -> None:
        """After each look at the registry: whoever waits for a worker that lost its lease waits no longer."""
        now = time.monotonic()
        for watched in self._waits.values():
            if self._table.has_lease(watched.worker):
                watched.missing_since = None
            elif watched.missing_since is None:
                watched.missing_since = now
            elif now - watched.missing_since > VANISHED_S and not (watched.vanished or watched.timeout.expired()):
                watched.vanished = True
                watched.timeout.reschedule(asyncio.get_running_loop().time())


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
        raise _Trouble(ErrorCode.WORKER_FAILED, "an event is not understood", blame=True) from None
    raise _classified(ApiError.from_body({"error": detail.model_dump()}))


async def _refusal(response: httpx.Response) -> Exception:
    """What a worker's answer other than 200 means."""
    try:
        body = (await response.aread())[:100_000]
        error = ApiError.from_body(httpx.Response(200, content=body).json())
    except (ValueError, httpx.HTTPError):
        error = ApiError(ErrorCode.INTERNAL_ERROR, "The worker gave no reason.")
    if response.status_code in (429, 503) and error.code not in _BUSY:
        error = ApiError(ErrorCode.QUEUE_FULL, error.message)
    retry_after = response.headers.get("retry-after", "")
    return _classified(error, float(retry_after) if retry_after.isdecimal() else None)


def _classified(error: ApiError, retry_after_s: float | None = None) -> Exception:
    if error.code in _BUSY:
        return _Trouble(ErrorCode.QUEUE_FULL, error.code.value, blame=False, retry_after_s=retry_after_s or 2.0)
    if STATUS[error.code] in (400, 413):
        return error
    code = ErrorCode.WORKER_TIMEOUT if error.code is ErrorCode.WORKER_TIMEOUT else ErrorCode.WORKER_FAILED
    return _Trouble(code, error.code.value, blame=True)
