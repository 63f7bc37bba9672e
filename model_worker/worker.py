"""One worker: its state, its engine once that is loaded, and the answers in progress.

An answer is one async generator. It is counted before any expensive work and uncounted in its `finally`, so closing the
generator releases everything that the answer holds. Runs on the event loop; knows no HTTP.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from model_worker.answer_record import AnswerRecord
from model_worker.config import WorkerSettings
from model_worker.embedding import embed_inputs
from model_worker.engine_protocol import Engine, Piece, Prompt, PromptSource, source_of
from model_worker.liveness import Liveness
from model_worker.metrics import WorkerMetrics
from service_kit.logs import log_event
from wire.answers import Delta, Finished
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ApiError, ErrorCode
from wire.workers import GenerateRequest, Load, TokensReply, TokensRequest, WorkerState

_logger = logging.getLogger(__name__)

#: Shorter prompts are rendered and encoded on the event loop: a thread switch costs more than the work.
_INLINE_CHARS = 4096
_MAX_RETRY_AFTER_S = 30.0
#: What Worker.answer raises besides INVALID_REQUEST; routes declare it in their documentation.
ANSWER_ERRORS = (
    ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    ErrorCode.WORKER_FAILED,
    ErrorCode.QUEUE_FULL,
    ErrorCode.NO_WORKER,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.WORKER_TIMEOUT,
)


class Worker:
    """Owns the worker's state, the count of answers in progress and the metrics."""

    def __init__(self, settings: WorkerSettings, engine: Engine | None = None) -> None:
        self.settings = settings
        self.started_at = int(time.time())
        self.epochs: frozenset[int] = frozenset()  #: of this process's registrations at its controllers
        self.has_broken_link = False  #: the work that registers it fails by a defect
        self.metrics = WorkerMetrics(
            model=settings.model_name,
            load=self.load,
            capacity=lambda: self._engine.capacity if self._engine is not None else None,
            operators=lambda: self._engine.operators if self._engine is not None else None,
        )
        self._liveness = Liveness(stalled_s=settings.stalled_step_s)
        self._engine = engine
        self._is_draining = False
        self._num_answers = 0
        self._mean_answer_s = 1.0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def engine(self) -> Engine:
        """Raises ApiError NO_WORKER while the model is still being loaded."""
        if self._engine is None:
            raise ApiError(ErrorCode.NO_WORKER, "The model is still being loaded.", retry_after_s=2.0)
        return self._engine

    @property
    def state(self) -> WorkerState:
        """Starting until `attach`, ready until `begin_draining`, then draining."""
        if self._is_draining:
            return "draining"
        return "ready" if self._engine is not None else "starting"

    @property
    def is_ready(self) -> bool:
        """Whether a request sent now would be accepted, and controllers are told of this worker."""
        return self.state == "ready" and self.engine.is_alive and not self.has_broken_link

    def load(self) -> Load | None:
        """The engine's load; None until it is loaded."""
        return self._engine.load() if self._engine is not None else None

    def attach(self, engine: Engine) -> None:
        """Set the loaded engine; called once."""
        assert self._engine is None
        self._engine = engine

    def begin_draining(self) -> None:
        """Refuse new answers from now on; those in progress go on."""
        self._is_draining = True

    async def wait_until_idle(self) -> None:
        """Return when no answer is in progress."""
        await self._idle.wait()

    def is_healthy(self) -> bool:
        """Whether the engine is alive and, while there is work, makes steps. True while the model is being loaded."""
        load = self.load()
        return load is None or (self.engine.is_alive and self._liveness.is_moving(load, time.monotonic()))

    async def embed(self, asked: EmbedRequest) -> EmbedReply:
        """One vector for each input, some inputs at a time. Raises ApiError.

        An engine's exception that is no ApiError is logged and becomes INTERNAL_ERROR.
        """
        self._num_answers += 1
        self._idle.clear()
        try:
            async with asyncio.timeout(self.settings.request_timeout_s):
                return await embed_inputs(self._admit(), asked)
        except ApiError:
            raise
        except TimeoutError:
            raise ApiError(ErrorCode.WORKER_TIMEOUT, "The vectors took too long.") from None
        except Exception:
            log_event(_logger, "embed_bug", logging.ERROR, exc_info=True, request_id=asked.request_id)
            raise ApiError(ErrorCode.INTERNAL_ERROR, "The worker failed to answer; its log says more.") from None
        finally:
            self._num_answers -= 1
            if self._num_answers == 0:
                self._idle.set()

    async def answer(self, asked: GenerateRequest) -> AsyncGenerator[Piece, None]:
        """Yields Accepted, deltas, Finished. Raises ApiError: instead of Accepted for a refusal, later for a failure.

        Measures and logs the answer. An engine's exception that is no ApiError is logged and becomes INTERNAL_ERROR.
        """
        record = AnswerRecord(self.metrics, asked.request_id)
        self._num_answers += 1
        self._idle.clear()
        try:
            pieces = self._pieces(self._admit(), asked)
            async with aclosing(pieces):
                async for piece in pieces:
                    self._note(piece, record)
                    yield replace(piece, queue_s=record.queue_s) if isinstance(piece, Finished) else piece
            record.check_finished()
        except ApiError as error:
            record.fail(error.code)
            raise
        except Exception:
            log_event(_logger, "answer_bug", logging.ERROR, exc_info=True, request_id=asked.request_id)
            record.fail(ErrorCode.INTERNAL_ERROR)
            raise ApiError(ErrorCode.INTERNAL_ERROR, "The worker failed to answer; its log says more.") from None
        finally:
            self._num_answers -= 1
            if self._num_answers == 0:
                self._idle.set()
            if record.is_finished:
                self._mean_answer_s += 0.1 * (record.seconds - self._mean_answer_s)
            record.close()

    async def tokens(self, asked: TokensRequest) -> TokensReply:
        """The tokens of a prompt, or the text of tokens. Raises ApiError."""
        engine = self.engine
        if asked.generate is not None:
            prompt = await _tokenise(engine, asked.generate)
        else:
            prompt = engine.tokenise(asked.token_ids or ())
        if not prompt.token_ids:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The prompt has no tokens that are known.", param="prompt")
        pieces = await asyncio.to_thread(engine.token_texts, prompt.token_ids)
        return TokensReply(
            token_ids=prompt.token_ids,
            text=engine.echo(replace(prompt, source=prompt.token_ids)).text,
            pieces=pieces,
            context_length=engine.card.context_length,
        )

    def _note(self, piece: Piece, record: AnswerRecord) -> None:
        """Measure a piece. Raises ApiError for an answer that the engine has aborted. Called for every token."""
        match piece:
            case Delta():
                record.observe(piece)
            case Finished(finish_reason="abort"):
                raise self._broken_off()
            case Finished():
                record.finish(piece)

    async def _pieces(self, engine: Engine, asked: GenerateRequest) -> AsyncGenerator[Piece, None]:
        """The engine's pieces under the request's time limit."""
        deadline = asyncio.get_running_loop().time() + self.settings.request_timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                prompt = await _tokenise(engine, asked)
            pieces = engine.generate(
                prompt,
                asked.sampling,
                request_id=asked.request_id,
                resume_token_ids=asked.resume_token_ids,
                cache_salt=asked.cache_salt,
            )
            echo = Delta("", (), prompt=engine.echo(prompt)) if asked.return_prompt else None
            async with aclosing(pieces):
                while True:
                    # One timeout for each wait, not one for the loop: a timeout that is active at a yield would cancel
                    # the task that reads the generator in the middle of other work.
                    async with asyncio.timeout_at(deadline):
                        piece = await anext(pieces, None)
                    if piece is None:
                        return
                    yield piece
                    if echo is not None:
                        yield echo
                        echo = None
        except TimeoutError:
            raise ApiError(ErrorCode.WORKER_TIMEOUT, "The answer took too long and was broken off.") from None

    def _admit(self) -> Engine:
        """Admission control before the prompt is rendered and encoded. `_num_answers` includes this request."""
        if self._is_draining:
            raise ApiError(ErrorCode.SHUTTING_DOWN, "This worker is shutting down.", retry_after_s=1.0)
        engine = self.engine
        if not engine.is_alive:
            raise ApiError(ErrorCode.WORKER_FAILED, "The engine of this worker has stopped.")
        capacity = engine.capacity
        if self._num_answers > capacity.max_running + capacity.max_queued:
            wait_s = self._mean_answer_s * capacity.max_queued / capacity.max_running
            retry_after_s = min(max(1.0, wait_s), _MAX_RETRY_AFTER_S)
            raise ApiError(ErrorCode.QUEUE_FULL, "Too many requests are waiting.", retry_after_s=retry_after_s)
        return engine

    def _broken_off(self) -> ApiError:
        if self._is_draining:
            return ApiError(ErrorCode.SHUTTING_DOWN, "The worker shut down before the answer was complete.")
        return ApiError(ErrorCode.WORKER_FAILED, "The engine broke off the answer.")


async def _tokenise(engine: Engine, asked: GenerateRequest) -> Prompt:
    source = source_of(asked)
    tokenise = partial(engine.tokenise, source, add_special_tokens=asked.add_special_tokens)
    prompt = tokenise() if _num_chars(source) <= _INLINE_CHARS else await asyncio.to_thread(tokenise)
    return prompt if asked.truncate_prompt_tokens is None else _truncated(prompt, asked, engine.card.context_length)


def _truncated(prompt: Prompt, asked: GenerateRequest, context_length: int) -> Prompt:
    """The end of a prompt that is longer than the request wants it."""
    if not prompt.token_ids:
        raise ApiError(
            ErrorCode.UNSUPPORTED_PARAMETER, "This model's tokens are not known.", param="truncate_prompt_tokens"
        )
    limit = asked.truncate_prompt_tokens
    if limit is None or limit < 0:
        limit = context_length - (1 if asked.sampling.max_tokens is None else asked.sampling.max_tokens)
    if limit < 1 or len(prompt.token_ids) <= limit:
        return prompt
    token_ids = prompt.token_ids[-limit:]
    return replace(prompt, token_ids=token_ids, source=token_ids if isinstance(prompt.source, str) else prompt.source)


def _num_chars(source: PromptSource) -> int:
    """How much there is to encode."""
    match source:
        case str():
            return len(source)
        case tuple():
            return 0
        case _:
            return sum(len(message.content) for message in source.messages)
