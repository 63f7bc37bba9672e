"""Another server as an engine: asks it for answers, again where a failure may pass, and knows when to ask no more.

The other server keeps its token ids, so a broken answer cannot be continued elsewhere: the model card says so.
"""

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx

from engine.text.thoughts import DEFAULT_TAGS
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Accepted, Hosting, Piece, Prompt, PromptSource
from model_worker.errors import BadSettings
from model_worker.remote.caps import Caps
from model_worker.remote.failures import (
    CLOSED_S,
    MAX_ATTEMPTS,
    MAX_CLOSED_S,
    PATIENCE_S,
    Failure,
    broken,
    failed,
    refused,
)
from model_worker.remote.failures import pause_s as pause_after
from model_worker.remote.keys import key_headers
from model_worker.remote.requests import request_of, url_of
from model_worker.remote.stream import AnswerStream, is_plain
from model_worker.remote.tools import check_continuation
from service_kit.logs import log_event
from service_kit.trust import trust
from wire.answers import PromptEcho
from wire.chat import SamplingOptions, TemplateKwargs
from wire.embeddings import PoolingFields
from wire.errors import ApiError, ErrorCode
from wire.hosted_models import HostedModel
from wire.workers import Capacity, Load, ModelCard, PoolPicture

_logger = logging.getLogger(__name__)

SILENCE_S = 60.0  #: longest pause between two pieces of the other server's answer, keep-alives included
_TIMEOUT = httpx.Timeout(SILENCE_S, connect=5.0)
_MAX_REFUSAL_BYTES = 1 << 16


class RemoteEngine:
    """Owns the connections to the other server, the queue in front of it, and the limits of what it is asked."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        hosted: HostedModel,
        *,
        card: ModelCard,
        capacity: Capacity,
        caps: Caps,
        default_max_tokens: int,
        chat_template_kwargs: TemplateKwargs,
    ) -> None:
        self.card = card
        self.capacity = capacity
        self.is_alive = True
        self._client = client
        self._hosted = hosted
        self._caps = caps
        self._default_max_tokens = default_max_tokens
        self._chat_template_kwargs = chat_template_kwargs
        self._slots = asyncio.Semaphore(capacity.max_running)
        self._num_running = 0
        self._num_waiting = 0
        self._num_events = 0
        self._num_prompt_tokens = 0
        self._num_completion_tokens = 0
        self._failures: Counter[tuple[str, str]] = Counter()
        self._problem: str | None = None  #: what every request would meet
        self._closed_until = 0.0  #: time.monotonic()
        self._next_closed_s = CLOSED_S

    @classmethod
    def from_settings(
        cls, settings: WorkerSettings, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> "RemoteEngine":
        """The engine of the only model of `settings`. Raises BadSettings for a source that is not understood and for a
        key that cannot be read. The other server may be down now and come up later."""
        try:
            hosted = HostedModel.parse(settings.model_path)
        except ValueError as error:
            raise BadSettings(f"{settings.model_name}: {error}") from None
        key_headers(hosted)
        limits = settings.engine_config
        max_running = hosted.max_running or limits.step_limits.max_running
        return cls(
            httpx.AsyncClient(
                headers={"User-Agent": "agon", **hosted.headers, "Accept-Encoding": "identity"},
                timeout=_TIMEOUT,
                limits=httpx.Limits(max_connections=max_running),
                verify=trust(settings.ca_file),
                transport=transport,
            ),
            hosted,
            card=ModelCard(
                name=settings.model_name,
                revision=hashlib.sha256(f"{hosted.url} {hosted.model}".encode()).hexdigest()[:12],
                architecture="remote",
                num_parameters=0,
                dtype="unknown",
                context_length=hosted.context_length,
                can_resume=False,
                runs_on="remote",
            ),
            capacity=Capacity(
                max_running=max_running,
                max_queued=limits.max_queued_requests,
                kv_tokens=max_running * hosted.context_length,
            ),
            caps=Caps(hosted, _usage_file(settings)),
            default_max_tokens=settings.default_max_tokens,
            chat_template_kwargs=settings.chat_template_kwargs,
        )

    @property
    def operators(self) -> None:
        """None: the other server computes."""
        return None

    @property
    def hosting(self) -> Hosting:
        """What is known of the other server and of the limits."""
        now = time.monotonic()
        reached = self._caps.reached()
        is_paused = now < self._closed_until
        problem = self._problem or ("the host asks to wait" if is_paused else None)
        if reached is not None:
            problem = reached.sentence
        is_closed = reached is not None or is_paused
        return Hosting(self._failures, is_closed, problem, self._caps.tokens, self._caps.cost)

    def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
        """The prompt without token ids, which only the other server knows. Raises UNSUPPORTED_PARAMETER for a prompt
        of token ids, and where special tokens are told apart: the protocol has no word for either."""
        if isinstance(source, tuple):
            raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, "This model takes no token ids.", param="prompt")
        if add_special_tokens is not None:
            raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, "This model does not take it.", param="add_special_tokens")
        if isinstance(source, str):
            return Prompt(source=source, token_ids=())
        check_continuation(source)
        return Prompt(source=source, token_ids=(), thoughts=DEFAULT_TAGS)

    def echo(self, prompt: Prompt) -> PromptEcho:
        """Raises UNSUPPORTED_PARAMETER: the other server keeps its tokens."""
        raise ApiError(
            ErrorCode.UNSUPPORTED_PARAMETER, "This model's tokens are not known: ask without echo.", param="echo"
        )

    def token_texts(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        """Raises UNSUPPORTED_PARAMETER: the other server keeps its tokens."""
        raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, "This model's tokens are not known.", param="model")

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        *,
        request_id: str,
        resume_token_ids: tuple[int, ...] = (),
        cache_salt: str = "",
    ) -> AsyncGenerator[Piece, None]:
        """As Engine.generate. Raises UNSUPPORTED_PARAMETER with `resume_token_ids`; BUDGET_REACHED, NO_WORKER,
        QUEUE_FULL, WORKER_TIMEOUT or WORKER_FAILED for limits and for the other server's failures.

        A failure that may pass is attempted again before the first token, never after it. The OpenAI protocol has no
        salt. What the other server says of cached tokens is therefore never passed on."""
        if resume_token_ids:
            raise ApiError(
                ErrorCode.UNSUPPORTED_PARAMETER, "This model cannot resume an answer.", param="resume_token_ids"
            )
        path, body = request_of(
            self._hosted,
            prompt.source,
            sampling,
            default_max_tokens=self._default_max_tokens,
            template_kwargs=self._chat_template_kwargs,
        )
        limit = sampling.max_tokens or self._default_max_tokens
        content = httpx.Request("POST", self._hosted.url, json=body).content
        give_up_at = time.monotonic() + PATIENCE_S
        is_accepted = False
        async with self._slot():
            for attempt in range(1, MAX_ATTEMPTS + 1):
                self._check_open()
                stream = AnswerStream(
                    prompt.thoughts, num_prompt_bytes=len(content), max_tokens=limit, on_event=self._count_event
                )
                try:
                    async with aclosing(self._attempt(path, content, stream)) as pieces:
                        async for piece in pieces:
                            if not isinstance(piece, Accepted) or not is_accepted:
                                is_accepted = True
                                yield piece
                    return
                except Failure as failure:
                    self._note_failure(failure, request_id)
                    pause_s = pause_after(attempt, failure.retry_after_s)
                    is_late = attempt == MAX_ATTEMPTS or time.monotonic() + pause_s > give_up_at
                    if stream.has_begun or not failure.may_pass or is_late:
                        self._close_for_a_while(failure)
                        raise failure.as_error() from None
                await asyncio.sleep(pause_s)

    def load(self) -> Load:
        """Counts of requests and of the tokens that the other server reported; the steps are events of its streams."""
        return Load(
            running=self._num_running,
            waiting=self._num_waiting,
            steps_total=self._num_events,
            prompt_tokens_total=self._num_prompt_tokens,
            generation_tokens_total=self._num_completion_tokens,
            is_closed=self.hosting.is_closed,
        )

    async def embed(
        self, token_ids: tuple[int, ...], pooling: PoolingFields, *, request_id: str, cache_salt: str = ""
    ) -> tuple[float, ...]:
        """Raises ApiError: only answers are taken from the other server."""
        raise ApiError(ErrorCode.INVALID_REQUEST, "This model gives no vectors.", param="model")

    async def picture(self) -> PoolPicture | None:
        """None: the other server does not show its pool."""
        return None

    async def shutdown(self) -> None:
        """Close the connections, which ends every answer in progress."""
        self.is_alive = False
        await self._client.aclose()

    async def _attempt(self, path: str, content: bytes, stream: AnswerStream) -> AsyncGenerator[Piece, None]:
        """One request to the other server. Raises Failure."""
        try:
            headers = {"Content-Type": "application/json", **key_headers(self._hosted)}
        except BadSettings as error:
            raise _without_key(error) from None
        self._caps.note_request()
        is_open = False
        try:
            url = url_of(self._hosted, path)
            async with self._client.stream("POST", url, content=content, headers=headers) as response:
                is_open = True
                if response.status_code != 200:
                    raise refused(response.status_code, response.headers, await _start_of(response))
                yield Accepted()
                try:
                    async for delta in stream.deltas(response):
                        yield delta
                finally:
                    self._note_usage(stream)
            self._problem, self._next_closed_s = None, CLOSED_S
            yield stream.finished()
        except httpx.HTTPError as error:
            raise broken(error, has_begun=is_open) from None

    def _note_usage(self, stream: AnswerStream) -> None:
        """Count what was used, also where the answer broke off or its reader left."""
        usage = stream.usage()
        self._caps.note_usage(usage)
        self._num_prompt_tokens += usage.prompt_tokens
        self._num_completion_tokens += usage.completion_tokens

    def _check_open(self) -> None:
        """Raises ApiError while a limit is reached, or the other server refuses every request."""
        reached = self._caps.reached()
        if reached is not None:
            message = "A limit of this model is reached. Ask again later."
            raise ApiError(ErrorCode.BUDGET_REACHED, message, retry_after_s=reached.free_in_s, reason=reached.reason)
        wait_s = self._closed_until - time.monotonic()
        if wait_s > 0:
            raise ApiError(ErrorCode.NO_WORKER, "The model cannot be asked now.", retry_after_s=wait_s, reason="closed")

    def _close_for_a_while(self, failure: Failure) -> None:
        """Take no request until the failure may have passed: then the next request finds out."""
        if failure.problem is not None:
            self._problem = failure.problem
            self._closed_until = time.monotonic() + self._next_closed_s
            self._next_closed_s = min(MAX_CLOSED_S, 2 * self._next_closed_s)
        elif failure.retry_after_s is not None and failure.may_pass:
            self._closed_until = time.monotonic() + failure.retry_after_s

    def _note_failure(self, failure: Failure, request_id: str) -> None:
        status = "none" if failure.status is None else str(failure.status)
        self._failures[status, failure.reason] += 1
        log_event(
            _logger,
            "host_failed",
            logging.WARNING,
            model=self.card.name,
            request_id=request_id,
            status=status,
            reason=failure.reason,
        )

    def _count_event(self) -> None:
        self._num_events += 1

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        if self._num_waiting >= self.capacity.max_queued:
            raise ApiError(ErrorCode.QUEUE_FULL, "Too many requests are waiting.")
        self._num_waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._num_waiting -= 1
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1
            self._slots.release()


async def _start_of(response: httpx.Response) -> bytes:
    """The beginning of a refusal's body; nothing of one that is compressed."""
    body = b""
    if not is_plain(response):
        return body
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= _MAX_REFUSAL_BYTES:
            break
    return body


def _without_key(error: BadSettings) -> Failure:
    failure = failed("no_key")
    failure.problem = str(error)
    return failure


def _usage_file(settings: WorkerSettings) -> Path | None:
    """Where the counters of the day are kept: beside the list of models."""
    if settings.models_file is None:
        return None
    name = hashlib.sha256(settings.model_name.encode()).hexdigest()[:12]
    return settings.models_file.with_name(f"{settings.models_file.stem}-usage-{name}.json")
