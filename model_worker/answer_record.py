"""Measures and logs one answer: its latencies and how it ended, never its text."""

import logging
import time

from model_worker.metrics import ModelMetrics
from service_kit.logs import log_event
from wire.answers import Delta, Finished
from wire.chat import Usage
from wire.errors import ApiError, ErrorCode

_logger = logging.getLogger(__name__)


class AnswerRecord:
    """Made when a request arrives, closed when its answer has ended. An answer that was neither finished nor failed by
    then counts as aborted: its client has left."""

    def __init__(self, metrics: ModelMetrics, request_id: str) -> None:
        self._metrics = metrics
        self._request_id = request_id
        self._arrived = time.monotonic()
        self._last_token_at: float | None = None
        self._ttft_s: float | None = None
        self._outcome: str | None = None
        self._usage: Usage | None = None
        self.queue_s: float | None = None  #: in the engine's queue, where the engine says so

    @property
    def is_finished(self) -> bool:
        """Whether the engine has finished the answer."""
        return self._usage is not None

    @property
    def seconds(self) -> float:
        """Time since the request arrived."""
        return time.monotonic() - self._arrived

    def observe(self, delta: Delta) -> None:
        """Measure the time to the first token, or since the previous tokens. An empty delta is ignored."""
        if not (delta.token_ids or delta.text or delta.thoughts):
            return
        now = time.monotonic()
        if self._last_token_at is None:
            self._ttft_s = now - self._arrived
            self._metrics.observe_first_token(self._ttft_s)
            self.queue_s = delta.queue_s
            if delta.queue_s is not None:
                self._metrics.observe_queue(delta.queue_s)
        else:
            self._metrics.observe_tokens(now - self._last_token_at, max(1, len(delta.token_ids)))
        self._last_token_at = now

    def finish(self, finished: Finished) -> None:
        """The answer is complete."""
        self._outcome, self._usage = finished.finish_reason, finished.usage
        self._metrics.count_finished(finished.finish_reason, self.seconds)

    def fail(self, code: ErrorCode) -> None:
        """The answer was refused, or broke off, with this code."""
        self._outcome = code.value
        self._metrics.count_failed(code.value)

    def check_finished(self) -> None:
        """Raises ApiError WORKER_FAILED unless `finish` was called: an engine's stream must not end without a finish
        reason."""
        if not self.is_finished:
            raise ApiError(ErrorCode.WORKER_FAILED, "The engine ended the answer without saying why.")

    def close(self) -> None:
        """Count an aborted answer, and log how this one ended."""
        if self._outcome is None:
            self._outcome = "aborted"
            self._metrics.count_aborted()
        log_event(
            _logger,
            "answer_ended",
            request_id=self._request_id,
            outcome=self._outcome,
            seconds=round(self.seconds, 4),
            queue_s=None if self.queue_s is None else round(self.queue_s, 4),
            ttft_s=None if self._ttft_s is None else round(self._ttft_s, 4),
            prompt_tokens=self._usage.prompt_tokens if self._usage is not None else None,
            completion_tokens=self._usage.completion_tokens if self._usage is not None else None,
        )
