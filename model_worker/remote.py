"""Another server behind the engine protocol: any OpenAI-compatible endpoint becomes a model of the arena.

The other server keeps its token ids, so a broken answer cannot be continued elsewhere: the model card says so. The text
of its errors is not passed on, because it may name the model or quote the request.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from engine.sampling_params import ThoughtTags
from engine.text.thoughts import DEFAULT_TAGS, Said, ThoughtSplitter
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Accepted, Piece, Prompt, PromptSource
from model_worker.errors import BadSettings
from model_worker.remote_tools import called, check_continuation, request_messages, tool_fields
from model_worker.tool_requests import wire_calls
from wire.answers import Delta, Finished, PromptEcho
from wire.chat import FinishReason, SamplingOptions, TemplateKwargs, Usage
from wire.embeddings import PoolingFields
from wire.errors import ApiError, ErrorCode
from wire.sse import SseDecoder
from wire.workers import Capacity, Load, ModelCard, PoolPicture

_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
#: Parameters that every OpenAI-compatible server understands. Any other is refused rather than ignored.
_PORTABLE = (
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
)


#: The other server's finish reasons that are more than "stop".
_FINISH: Mapping[str, FinishReason] = {"length": "length", "tool_calls": "tool_calls"}
_NOTHING = Said("", "")


class RemoteEngine:
    """Owns the connections to the other server, and the queue in front of it. An Engine."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        model: str,
        card: ModelCard,
        capacity: Capacity,
        default_max_tokens: int,
        chat_template_kwargs: TemplateKwargs,
    ) -> None:
        self.card = card
        self.capacity = capacity
        self.is_alive = True
        self._client = client
        self._model = model
        self._default_max_tokens = default_max_tokens
        self._chat_template_kwargs = chat_template_kwargs
        self._slots = asyncio.Semaphore(capacity.max_running)
        self._num_running = 0
        self._num_waiting = 0
        self._num_events = 0
        self._num_prompt_tokens = 0
        self._num_completion_tokens = 0

    @classmethod
    def from_settings(
        cls, settings: WorkerSettings, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> "RemoteEngine":
        """Raises BadSettings when the key file cannot be read. The other server may be down now and come up later."""
        assert settings.remote_base_url is not None
        assert settings.remote_model is not None
        limits = settings.engine_config
        max_running = limits.step_limits.max_running
        base_url = settings.remote_base_url.rstrip("/")
        key_file = settings.remote_api_key_file
        try:
            key = key_file.read_text().strip() if key_file is not None else None
        except OSError as error:
            raise BadSettings(f"cannot read {key_file}: {error.strerror}") from None
        return cls(
            httpx.AsyncClient(
                base_url=base_url,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=_TIMEOUT,
                limits=httpx.Limits(max_connections=max_running),
                transport=transport,
            ),
            model=settings.remote_model,
            card=ModelCard(
                name=settings.model_name,
                revision=hashlib.sha256(f"{base_url} {settings.remote_model}".encode()).hexdigest()[:12],
                architecture="remote",
                num_parameters=0,
                dtype="unknown",
                context_length=settings.remote_context_length,
                can_resume=False,
                runs_on="remote",
            ),
            capacity=Capacity(
                max_running=max_running,
                max_queued=limits.max_queued_requests,
                kv_tokens=max_running * settings.remote_context_length,
            ),
            default_max_tokens=settings.default_max_tokens,
            chat_template_kwargs=settings.chat_template_kwargs,
        )

    @property
    def operators(self) -> None:
        """None: the other server computes."""
        return None

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
        """As Engine.generate. Raises UNSUPPORTED_PARAMETER with `resume_token_ids`, WORKER_TIMEOUT or WORKER_FAILED for
        the other server's failures.

        The OpenAI protocol has no salt. What the other server says of cached tokens is therefore never passed on."""
        if resume_token_ids:
            raise ApiError(
                ErrorCode.UNSUPPORTED_PARAMETER, "This model cannot resume an answer.", param="resume_token_ids"
            )
        path, body = self._request(prompt.source, sampling)
        try:
            async with self._slot(), self._client.stream("POST", path, json=body) as response:
                if response.status_code != 200:
                    raise await _refusal(response)
                yield Accepted()
                async for piece in self._read(response, prompt.thoughts):
                    yield piece
        except httpx.TimeoutException:
            raise ApiError(ErrorCode.WORKER_TIMEOUT, "The model's server did not answer in time.") from None
        except httpx.HTTPError:
            raise ApiError(ErrorCode.WORKER_FAILED, "The model's server cannot be reached.") from None

    def load(self) -> Load:
        """Counts of requests and of the tokens that the other server reported; the steps are events of its streams."""
        return Load(
            running=self._num_running,
            waiting=self._num_waiting,
            steps_total=self._num_events,
            prompt_tokens_total=self._num_prompt_tokens,
            generation_tokens_total=self._num_completion_tokens,
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

    def _request(self, source: PromptSource, sampling: SamplingOptions) -> tuple[str, dict[str, Any]]:
        given = sampling.model_dump(mode="json", exclude_none=True)
        unknown = sorted(name for name, value in given.items() if name not in _PORTABLE and value)
        if unknown:
            raise ApiError(
                ErrorCode.UNSUPPORTED_PARAMETER, f"This model does not take {unknown[0]!r}.", param=unknown[0]
            )
        body: dict[str, Any] = {name: value for name, value in given.items() if name in _PORTABLE}
        body.setdefault("max_tokens", self._default_max_tokens)
        body |= {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        if isinstance(source, tuple):
            raise AssertionError("tokenise refuses token ids")
        if isinstance(source, str):
            return "/completions", body | {"prompt": source}
        kwargs = self._chat_template_kwargs | source.chat_template_kwargs
        body |= {"messages": request_messages(source.messages), **tool_fields(source)}
        return "/chat/completions", body | ({"chat_template_kwargs": kwargs} if kwargs else {})

    async def _read(self, response: httpx.Response, tags: ThoughtTags | None) -> AsyncGenerator[Piece, None]:
        """Thoughts come in a field of their own, or between tags where the other server does not know them."""
        splitter = ThoughtSplitter(tags) if tags is not None else None
        finish_reason: FinishReason | None = None
        usage: dict[str, Any] | None = None
        num_deltas, has_calls = 0, False
        async for data in self._data(response):
            said, reason, usage = _parse(data, usage)
            if reason is not None:
                finish_reason = _FINISH.get(reason, "stop")
            has_calls |= bool(said.tool_calls)
            if said.thoughts:
                splitter = None
            num_deltas += said != _NOTHING
            if splitter is not None:
                said = splitter.push(said.text)._replace(tool_calls=said.tool_calls)
            if said != _NOTHING:
                calls = wire_calls(said.tool_calls)
                yield Delta(text=said.text, token_ids=(), thoughts=said.thoughts, tool_calls=calls)
        rest = splitter.flush() if splitter is not None else _NOTHING
        if rest != _NOTHING:
            yield Delta(text=rest.text, token_ids=(), thoughts=rest.thoughts)
        if has_calls and finish_reason == "stop":  # as some servers say in spite of calls
            finish_reason = "tool_calls"
        yield self._finished(finish_reason, usage, num_deltas)

    async def _data(self, response: httpx.Response) -> AsyncGenerator[str, None]:
        """The data of each event up to the last one."""
        decoder = SseDecoder()
        async for chunk in response.aiter_bytes():
            for event in decoder.feed(chunk):
                self._num_events += 1
                if event.data == "[DONE]":
                    return
                yield event.data

    def _finished(self, reason: FinishReason | None, usage: dict[str, Any] | None, num_deltas: int) -> Finished:
        """The final event. A delta counts as a token where the other server reports no usage. Raises WORKER_FAILED for
        a stream that stopped without a finish reason."""
        if reason is None:
            raise ApiError(ErrorCode.WORKER_FAILED, "The model's server broke off the answer.")
        num_prompt = _count(usage, "prompt_tokens", 0)
        num_completion = _count(usage, "completion_tokens", num_deltas)
        details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
        num_thoughts = min(_count(details, "reasoning_tokens", 0), num_completion)
        self._num_prompt_tokens += num_prompt
        self._num_completion_tokens += num_completion
        return Finished(
            finish_reason=reason, usage=Usage.counted(num_prompt, num_completion, num_thoughts=num_thoughts)
        )


def _parse(data: str, usage: dict[str, Any] | None) -> tuple[Said, str | None, dict[str, Any] | None]:
    """Thoughts and text, finish reason and usage of one chunk; raises WORKER_FAILED for malformed data."""
    try:
        chunk = json.loads(data)
        if "error" in chunk:
            raise ValueError("an error in mid-stream")
        usage = chunk.get("usage") or usage
        if not chunk.get("choices"):
            return _NOTHING, None, usage
        choice = chunk["choices"][0]
        if "delta" not in choice:
            return Said("", str(choice.get("text") or "")), choice.get("finish_reason"), usage
        delta = choice["delta"]
        said = _content(delta.get("content"))
        thoughts = delta.get("reasoning_content") or delta.get("reasoning") or ""
        if not isinstance(thoughts, str):
            raise ValueError("thoughts that are no text")
        said = Said(thoughts + said.thoughts, said.text, called(delta))
        return said, choice.get("finish_reason"), usage
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ApiError(ErrorCode.WORKER_FAILED, "The model's server broke off the answer.") from None


def _content(content: Any) -> Said:
    """The content of a delta: a text, or parts of type text and thinking."""
    if not isinstance(content, list):
        return Said("", str(content or ""))
    texts = [str(part.get("text") or "") for part in content if part["type"] == "text"]
    thinking = [_content(part.get("thinking")).text for part in content if part["type"] == "thinking"]
    return Said("".join(thinking), "".join(texts))


def _count(usage: dict[str, Any] | None, name: str, default: int) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else default


async def _refusal(response: httpx.Response) -> ApiError:
    body = await response.aread()
    match response.status_code:
        case 429:
            return ApiError(ErrorCode.QUEUE_FULL, "The model's server has no room now.", retry_after_s=5.0)
        case 503:
            return ApiError(ErrorCode.QUEUE_FULL, "The model's server has no room now.")
        case 400 | 413 | 422 if b"context" in body:
            return ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "The conversation is too long.", param="messages")
        case 400 | 413 | 422:
            return ApiError(ErrorCode.INVALID_REQUEST, "The model's server does not take this request.")
        case _:
            return ApiError(ErrorCode.WORKER_FAILED, "The model's server failed.")
