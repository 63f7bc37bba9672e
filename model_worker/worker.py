"""One model of a worker process: its state, its engine while it is in memory, and the answers in progress.

An answer is one async generator. It is counted before any expensive work and uncounted in its `finally`, so closing the
generator releases everything that the answer holds. Runs on the event loop; knows no HTTP.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial

from model_worker.answer_record import AnswerRecord
from model_worker.config import WorkerSettings
from model_worker.embedding import embed_inputs
from model_worker.engine_protocol import Engine, Hosting, Piece, Prompt, PromptSource, source_of
from model_worker.liveness import Liveness
from model_worker.metrics import Metrics, ModelFigures
from service_kit.logs import log_event
from wire.answers import Delta, Finished
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ApiError, ErrorCode
from wire.workers import Capacity, GenerateRequest, Load, ModelCard, TokensReply, TokensRequest, WorkerState

_logger = logging.getLogger(__name__)

#: Shorter prompts are rendered and encoded on the event loop: a thread switch costs more than the work.
_INLINE_CHARS = 4096
_MAX_RETRY_AFTER_S = 30.0
#: What Worker.answer raises besides INVALID_REQUEST; routes declare it in their documentation.
ANSWER_ERRORS = (
    ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    ErrorCode.WORKER_FAILED,
    ErrorCode.QUEUE_FULL,
    ErrorCode.BUDGET_REACHED,
    ErrorCode.NO_WORKER,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.WORKER_TIMEOUT,
    ErrorCode.MODEL_ASLEEP,
)


class Worker:
    """One model of the process: its state, its engine while it is in memory, its answers and its metrics.

    A request that comes while the model is not in memory wakes it: `wake` brings it there or raises ApiError; None:
    the engine is attached or it is still to be loaded.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        engine: Engine | None = None,
        *,
        metrics: Metrics | None = None,
        wake: Callable[[], Awaitable[None]] | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`settings` are those of this model. `on_change` is called when an answer has begun or ended and when the
        state has changed."""
        self.settings = settings
        self.name = settings.model_name
        self.started_at = int(time.time())
        self.epochs: frozenset[int] = frozenset()  #: of this process's registrations at its controllers
        self.has_broken_link = False  #: the work that registers it fails by a defect
        self.registration_problem: str | None = None  #: why no controller has ever registered it, where one should
        figures = ModelFigures(
            self.load,
            lambda: self.capacity if self._card is not None else None,
            lambda: self._engine.operators if self._engine is not None else None,
            lambda: self._engine is not None,
            lambda: self.hosting,
        )
        self.metrics = (metrics or Metrics()).of(self.name, figures)
        self.wake_s: float | None = None  #: how long its last waking took
        self.used_at = time.monotonic()  #: when its last answer began or ended
        self._wake = wake
        self._on_change = on_change
        self._liveness = Liveness(stalled_s=settings.stalled_step_s)
        self._engine: Engine | None = None
        self._card: ModelCard | None = None
        self._capacity: Capacity | None = None
        self._last_load = Load()
        self._is_draining = False
        self._num_answers = 0  #: those that wait for the model to wake included
        self._num_users = 0  #: of the engine
        self._mean_answer_s = 1.0
        self._idle = _set_event()
        self._unused = _set_event()
        if engine is not None:
            self.attach(engine)

    @property
    def engine(self) -> Engine:
        """Raises ApiError NO_WORKER while the model is not in memory."""
        if self._engine is None:
            raise ApiError(ErrorCode.NO_WORKER, "The model is still being loaded.", retry_after_s=2.0)
        return self._engine

    @property
    def card(self) -> ModelCard:
        """The model, as controllers show and route it. Raises ApiError NO_WORKER before it is known."""
        if self._card is None:
            raise ApiError(ErrorCode.NO_WORKER, "The model is still being loaded.", retry_after_s=2.0)
        return self._card

    @property
    def capacity(self) -> Capacity:
        """How many requests and tokens fit; of a model that was never in memory without its tokens. Raises ApiError
        NO_WORKER before it is known."""
        if self._capacity is None:
            raise ApiError(ErrorCode.NO_WORKER, "The model is still being loaded.", retry_after_s=2.0)
        return self._capacity

    @property
    def state(self) -> WorkerState:
        """Starting until `attach` or `describe`, then ready while the model is in memory and else asleep, or
        draining."""
        if self._is_draining:
            return "draining"
        if self._engine is not None:
            return "ready"
        return "starting" if self._card is None else "asleep"

    @property
    def is_ready(self) -> bool:
        """Whether a request sent now would be accepted, and controllers are told of this worker."""
        is_able = self.state == "asleep" or (self.state == "ready" and self.engine.is_alive)
        return is_able and not self.has_broken_link

    @property
    def is_resident(self) -> bool:
        """Whether the model is in memory."""
        return self._engine is not None

    @property
    def hosting(self) -> Hosting | None:
        """What is known of the other server that answers; None: the model is computed here, or not in memory."""
        return self._engine.hosting if self._engine is not None else None

    @property
    def is_unused(self) -> bool:
        """Whether no answer needs the engine."""
        return self._num_users == 0

    @property
    def num_waiting(self) -> int:
        """Answers that wait for the model to wake."""
        return self._num_answers - self._num_users

    def load(self) -> Load | None:
        """The engine's load, or its last counters while the model is not in memory; None before the model is known."""
        if self._card is None:
            return None
        wake_s = self.wake_s or 0.0
        if self._engine is None:
            return self._last_load.model_copy(update={"wake_s": wake_s, "waiting": self.num_waiting})
        load = self._engine.load()
        return load if not wake_s else load.model_copy(update={"wake_s": wake_s})

    def describe(self, card: ModelCard, capacity: Capacity) -> None:
        """The model is on disk: it can be asked, and is loaded then."""
        self._card, self._capacity = card, capacity
        self._on_change()

    def attach(self, engine: Engine) -> None:
        """The model is in memory: answers are given by `engine` from now on."""
        assert self._engine is None
        self._engine = engine
        self._card, self._capacity = engine.card, engine.capacity
        self._on_change()

    def detach(self) -> None:
        """No new answer uses the engine. Call `wait_until_unused` before the engine is ended."""
        if self._engine is not None:
            self._last_load = _totals(self._engine.load())
            self._engine = None
            self._on_change()

    def begin_draining(self) -> None:
        """Refuse new answers from now on; those in progress go on."""
        self._is_draining = True
        self._on_change()

    async def wait_until_idle(self) -> None:
        """Return when no answer is in progress."""
        await self._idle.wait()

    async def wait_until_unused(self) -> None:
        """Return when no answer needs the engine."""
        await self._unused.wait()

    def is_healthy(self) -> bool:
        """Whether the engine is alive and, while there is work, makes steps. True while the model is not in memory."""
        if self._engine is None:
            return True
        if self._engine.hosting is not None:
            return self._engine.is_alive  # another server that is silent is no fault of this process
        return self._engine.is_alive and self._liveness.is_moving(self._engine.load(), time.monotonic())

    async def embed(self, asked: EmbedRequest) -> EmbedReply:
        """One vector for each input, some inputs at a time. Raises ApiError.

        An engine's exception that is no ApiError is logged and becomes INTERNAL_ERROR.
        """
        self._begin()
        try:
            async with asyncio.timeout(self.settings.request_timeout_s):
                engine = await self._admit()
                with self._using():
                    return await embed_inputs(engine, asked)
        except ApiError:
            raise
        except TimeoutError:
            raise ApiError(ErrorCode.WORKER_TIMEOUT, "The vectors took too long.") from None
        except Exception:
            log_event(_logger, "embed_bug", logging.ERROR, exc_info=True, request_id=asked.request_id)
            raise ApiError(ErrorCode.INTERNAL_ERROR, "The worker failed to answer; its log says more.") from None
        finally:
            self._end()

    async def answer(self, asked: GenerateRequest) -> AsyncGenerator[Piece, None]:
        """Yields Accepted, deltas, Finished. Raises ApiError: instead of Accepted for a refusal, later for a failure.

        Measures and logs the answer. An engine's exception that is no ApiError is logged and becomes INTERNAL_ERROR.
        """
        record = AnswerRecord(self.metrics, asked.request_id)
        self._begin()
        try:
            engine = await self._admit()
            with self._using():
                pieces = self._pieces(engine, asked)
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
            self._end()
            if record.is_finished:
                self._mean_answer_s += 0.1 * (record.seconds - self._mean_answer_s)
            record.close()

    async def tokens(self, asked: TokensRequest) -> TokensReply:
        """The tokens of a prompt, or the text of tokens. Raises ApiError."""
        self._begin()
        try:
            engine = await self._admit()
            with self._using():
                return await self._tokens(engine, asked)
        finally:
            self._end()

    async def _tokens(self, engine: Engine, asked: TokensRequest) -> TokensReply:
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

    def _begin(self) -> None:
        self._num_answers += 1
        self._idle.clear()

    def _end(self) -> None:
        self._num_answers -= 1
        if self._num_answers == 0:
            self._idle.set()
            self._on_change()

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Inside, the engine is not ended. Enter it without an await after `_admit`."""
        self._num_users += 1
        self._unused.clear()
        self.used_at = time.monotonic()
        try:
            yield
        finally:
            self._num_users -= 1
            self.used_at = time.monotonic()
            if self._num_users == 0:
                self._unused.set()
                self._on_change()

    async def _admit(self) -> Engine:
        """Admission control before the prompt is rendered and encoded, then the engine, awake. `_num_answers` includes
        this request."""
        self._check_room()
        while self._engine is None and self._wake is not None and self._card is not None:
            await self._wake()
        if self._is_draining:
            raise _draining()
        engine = self.engine
        if not engine.is_alive:
            raise ApiError(ErrorCode.WORKER_FAILED, "The engine of this worker has stopped.")
        return engine

    def _check_room(self) -> None:
        if self._is_draining:
            raise _draining()
        capacity = self.capacity
        if self._num_answers > capacity.max_running + capacity.max_queued:
            wait_s = self._mean_answer_s * capacity.max_queued / capacity.max_running
            retry_after_s = min(max(1.0, wait_s), _MAX_RETRY_AFTER_S)
            raise ApiError(ErrorCode.QUEUE_FULL, "Too many requests are waiting.", retry_after_s=retry_after_s)

    def _broken_off(self) -> ApiError:
        if self._is_draining:
            return ApiError(ErrorCode.SHUTTING_DOWN, "The worker shut down before the answer was complete.")
        return ApiError(ErrorCode.WORKER_FAILED, "The engine broke off the answer.")


def _draining() -> ApiError:
    return ApiError(ErrorCode.SHUTTING_DOWN, "This worker is shutting down.", retry_after_s=1.0)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _totals(load: Load) -> Load:
    """The counters of an engine that is ended."""
    now = {"running": 0, "waiting": 0, "swapped": 0, "queued_tokens": 0, "tokens_per_s": 0.0, "pages": ()}
    gone = {name: 0 for name in Load.model_fields if name.startswith(("kv_bytes", "mirror_bytes"))}
    return load.model_copy(update={**now, **gone})


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
