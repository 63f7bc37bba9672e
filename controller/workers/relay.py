"""One answer of a model as a stream of events, with failover between the model's replicas.

An attempt that fails before the first token is sent again to another replica. After the first token the emitted token
ids are replayed there, and the replica continues them, so the text continues byte for byte. Only one sample can be
replayed: an answer of several ends with an error there. A replay waits for a place
and for a worker that starts again, as its answer is half written; an answer without a token waits a second at most.
Never switches to another model. Knows no battle and no client: closing the iterator closes the upstream stream, and the
worker then aborts.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from prometheus_client import Histogram

from controller.metrics import Metrics
from controller.workers.breaker import CircuitBreaker, WorkerStart
from controller.workers.dispatch import Lane
from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.upstream import AnswerEvent, Trouble, Upstream
from service_kit.logs import log_event
from wire.answers import Delta
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ApiError, ErrorCode
from wire.workers import GenerateRequest

#: Reasons for which a replay waits. Without a worker it waits only if the connection broke: then the worker's process
#: may be starting again.
_PASSING = frozenset({ErrorCode.QUEUE_FULL, ErrorCode.STORE_UNAVAILABLE})
FIRST_WAIT_S = 1.0  #: an answer without a token waits so long at most, and only if its worker has died
RETRY_S = 0.2  #: pause before a replay asks for a place again

#: Told the worker, what happened, and how many tokens the answer has.
OnTrouble = Callable[[Worker, Trouble, int], None]

_logger = logging.getLogger(__name__)


@dataclass
class _Attempts:
    """The attempts for one answer, and the tokens received so far."""

    first_token: Histogram
    caller: str
    on_trouble: OnTrouble | None = None
    started: float = field(default_factory=time.monotonic)
    emitted: list[int] = field(default_factory=list)
    has_begun: bool = False  #: a delta has arrived; it may have had no token ids (see ModelCard.can_resume)
    is_finished: bool = False
    tried: set[WorkerStart] = field(default_factory=set)  #: workers that failed
    count: int = 1  #: since the last token
    num_stale: int = 0  #: attempts that met a newer start of their worker, which says nothing against it
    give_up_at: float | None = None  #: time.monotonic() at which a replay stops waiting; None while the answer goes on

    @property
    def phase(self) -> str:
        """Label of metrics and logs."""
        return "after_first_token" if self.has_begun else "before_first_token"

    def rest_of(self, request: GenerateRequest, worker: Worker) -> GenerateRequest:
        """The request as `worker` gets it: for its model and its epoch, with the token ids to replay."""
        meant = {"model": worker.card.name, "epoch": worker.epoch}
        return request.model_copy(update={**meant, "resume_token_ids": tuple(self.emitted)})

    def record(self, event: AnswerEvent) -> None:
        """Keep what a replay needs of `event`. Called for every token."""
        if not isinstance(event, Delta) or event.prompt is not None:
            return
        if not self.has_begun:
            self.has_begun = True
            self.first_token.observe(time.monotonic() - self.started)
        if self.give_up_at is not None:
            self.give_up_at, self.count = None, 1
        if event.index == 0:
            self.emitted.extend(event.token_ids)


class Relay:
    """Relays answers of workers; shared by all requests and without state of its own. `note_failure` is told the cause,
    the model and the worker of each attempt that failed."""

    def __init__(
        self,
        upstream: Upstream,
        table: RoutingTable,
        breaker: CircuitBreaker,
        metrics: Metrics,
        note_failure: Callable[[str, str, str], None],
        *,
        max_attempts: int,
        replay_wait_s: float,
    ) -> None:
        self._upstream = upstream
        self._table = table
        self._breaker = breaker
        self._metrics = metrics
        self._note_failure = note_failure
        self._max_attempts = max_attempts
        self._replay_wait_s = replay_wait_s

    async def answer(
        self,
        lane: Lane,
        request: GenerateRequest,
        *,
        caller: str,
        emitted: Sequence[int] = (),
        on_trouble: OnTrouble | None = None,
    ) -> AsyncGenerator[AnswerEvent, None]:
        """Events up to and including Finished; raises ApiError when no replica could finish the answer.

        `lane` moves to another replica on failover. Who reads the events closes it. `caller`: whose request it is, for
        the circuit breaker. `emitted`: the first tokens of the answer, which the client has already; the events are
        those after them. `on_trouble` is told of each attempt that failed.
        """
        has_begun = bool(emitted)
        attempts = _Attempts(self._metrics.first_token, caller, on_trouble, emitted=list(emitted), has_begun=has_begun)
        has_one_sample = request.num_samples == 1 and not request.sampling.is_ranked
        while not attempts.is_finished:
            events = self._upstream.attempt(lane.worker, attempts.rest_of(request, lane.worker))
            async with self._attempt(lane, has_one_sample, attempts), contextlib.aclosing(events):
                async for event in events:
                    attempts.record(event)
                    yield event

    async def embed(self, lane: Lane, request: EmbedRequest, *, caller: str) -> EmbedReply:
        """Vectors of a worker, or of another replica where it fails; raises ApiError when none could make them."""
        attempts = _Attempts(self._metrics.first_token, caller)
        while True:
            worker = lane.worker
            async with self._attempt(lane, True, attempts):
                meant = {"model": worker.card.name, "epoch": worker.epoch}
                return await self._upstream.embed(worker, request.model_copy(update=meant))

    @contextlib.asynccontextmanager
    async def _attempt(self, lane: Lane, has_one_sample: bool, attempts: _Attempts) -> AsyncGenerator[None, None]:
        """Records how one attempt ended. Trouble is suppressed if another replica takes over."""
        worker = lane.worker
        try:
            yield
        except Trouble as trouble:
            await self._move_on(lane, has_one_sample, attempts, trouble)
        except ApiError:
            self._metrics.streams.labels("refused").inc()
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self._metrics.streams.labels("closed").inc()
            raise
        else:
            self._breaker.succeeded((worker.worker_id, worker.epoch))
            self._metrics.streams.labels("finished").inc()
            attempts.is_finished = True

    async def _move_on(self, lane: Lane, has_one_sample: bool, attempts: _Attempts, trouble: Trouble) -> None:
        """Move the lane to another replica, or raise the error that ends the answer."""
        worker = lane.worker
        self._report(worker, attempts, trouble)
        if attempts.give_up_at is None:
            attempts.give_up_at = time.monotonic() + self._patience_s(attempts, trouble)
        may_wait = time.monotonic() < attempts.give_up_at
        if trouble.reason == ErrorCode.STALE_EPOCH:  # the worker has a newer registration: read it and ask again
            with contextlib.suppress(ApiError):
                await self._table.refresh()
            attempts.num_stale += 1
        elif trouble.code is ErrorCode.QUEUE_FULL and may_wait:
            await asyncio.sleep(RETRY_S)  # the same worker may be asked again
        else:
            attempts.tried.add((worker.worker_id, worker.epoch))
            attempts.count += 1
        is_last = max(attempts.count, attempts.num_stale) > self._max_attempts
        can_resume = worker.card.can_resume and has_one_sample
        if is_last or (attempts.has_begun and not can_resume):
            raise self._final(trouble)
        await self._move(lane, attempts, trouble)
        self._metrics.failovers.labels(attempts.phase).inc()

    def _patience_s(self, attempts: _Attempts, trouble: Trouble) -> float:
        """How long to wait for a place after the first trouble since a token."""
        if attempts.has_begun:
            return self._replay_wait_s
        return min(self._replay_wait_s, FIRST_WAIT_S) if trouble.is_cut else 0.0

    async def _move(self, lane: Lane, attempts: _Attempts, trouble: Trouble) -> None:
        assert attempts.give_up_at is not None
        while True:
            try:
                await lane.move(frozenset(attempts.tried))
                return
            except ApiError as error:
                may_pass = error.code in _PASSING or (error.code is ErrorCode.NO_WORKER and trouble.is_cut)
                if not may_pass or time.monotonic() >= attempts.give_up_at:
                    raise self._final(trouble) from None
            await asyncio.sleep(RETRY_S)

    def _report(self, worker: Worker, attempts: _Attempts, trouble: Trouble) -> None:
        """Tell the circuit breaker and the log."""
        if trouble.no_listener:
            self._breaker.refused((worker.worker_id, worker.epoch), round(self._table.store_time() * 1000))
        self._note_failure(trouble.reason, worker.card.name, worker.worker_id)
        if attempts.on_trouble is not None:
            attempts.on_trouble(worker, trouble, len(attempts.emitted))
        if trouble.blame:
            self._breaker.failed((worker.worker_id, worker.epoch), None if trouble.is_cut else attempts.caller)
        log_event(
            _logger,
            "worker_trouble",
            logging.WARNING,
            worker=worker.worker_id,
            reason=trouble.reason,
            phase=attempts.phase,
        )

    def _final(self, trouble: Trouble) -> ApiError:
        self._metrics.streams.labels(trouble.code.value).inc()
        messages = {
            ErrorCode.WORKER_TIMEOUT: "The model took too long to answer.",
            ErrorCode.QUEUE_FULL: "All workers of the model are full.",
            ErrorCode.MODEL_ASLEEP: "The model did not wake in time. Ask again.",
        }
        message = trouble.message or messages.get(trouble.code, "The model's worker failed.")
        return ApiError(trouble.code, message, retry_after_s=trouble.retry_after_s)
