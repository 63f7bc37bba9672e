"""One answer from one of a model's workers, as a stream of events; another replica goes on where one fails.

Before the first token a failed request is simply sent again, after it the emitted token ids are replayed: the replica
continues them, so the text goes on byte for byte. Never falls over to another model. Knows no battle and no client:
closing the iterator closes the upstream stream, at which the worker aborts.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from controller.metrics import Metrics
from controller.workers.breaker import CircuitBreaker
from controller.workers.dispatch import Lane
from controller.workers.routing_table import RoutingTable
from controller.workers.upstream import AnswerEvent, Delta, Trouble, Upstream
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode
from wire.workers import GenerateRequest

_logger = logging.getLogger(__name__)


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
        upstream: Upstream,
        table: RoutingTable,
        breaker: CircuitBreaker,
        metrics: Metrics,
        *,
        max_attempts: int,
    ) -> None:
        self._upstream = upstream
        self._table = table
        self._breaker = breaker
        self._metrics = metrics
        self._max_attempts = max_attempts

    async def answer(self, lane: Lane, request: GenerateRequest) -> AsyncGenerator[AnswerEvent, None]:
        """Events up to Finished, or ApiError. The lane stays the caller's to close."""
        attempts = _Attempts()
        started = time.monotonic()
        while True:
            worker = lane.worker
            try:
                resumed = request.model_copy(
                    update={"epoch": worker.epoch, "resume_token_ids": tuple(attempts.emitted)}
                )
                async with contextlib.aclosing(self._upstream.attempt(worker, resumed)) as events:
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
            except Trouble as trouble:
                await self._move_on(lane, attempts, trouble)
            except ApiError:
                self._metrics.streams.labels("refused").inc()
                raise
            except (asyncio.CancelledError, GeneratorExit):
                self._metrics.streams.labels("closed").inc()
                raise

    async def _move_on(self, lane: Lane, attempts: _Attempts, trouble: Trouble) -> None:
        """Put the lane on another replica, or raise the error that ends the answer."""
        worker = lane.worker
        if trouble.no_listener:
            self._breaker.refused((worker.worker_id, worker.epoch), round(self._table.store_time() * 1000))
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

    def _final(self, trouble: Trouble) -> ApiError:
        self._metrics.streams.labels(trouble.code.value).inc()
        messages = {
            ErrorCode.WORKER_TIMEOUT: "The model took too long to answer.",
            ErrorCode.QUEUE_FULL: "All workers of the model are full.",
        }
        message = messages.get(trouble.code, "The model's worker failed.")
        return ApiError(trouble.code, message, retry_after_s=trouble.retry_after_s)
