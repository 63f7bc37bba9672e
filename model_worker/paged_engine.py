"""Agon's own engine behind the worker's protocol: translates requests and deltas of a model that paged_loading.py has
loaded."""

import asyncio
import contextlib
import copy
import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal

from engine.async_engine import AsyncEngine
from engine.errors import AdapterError, EngineDead, EngineError, InvalidRequest
from engine.request import RequestDelta
from engine.sampling_params import PoolingParams, ToolFormat
from engine.text.bad_words import with_bad_words
from engine.text.plain_chat import PLAIN_STOPS
from engine.text.prompted_tools import PROMPTED_FORMAT
from model_worker.answer_end import SampleUsage
from model_worker.engine_load import MAX_CELLS, load_of, pool_picture
from model_worker.engine_protocol import Accepted, Conversation, Piece, Prompt, PromptSource
from model_worker.errors import BadCheckpoint, one_line
from model_worker.logprobs import named_token, prompt_logprobs, token_logprobs
from model_worker.tool_requests import template_messages, tool_request, wire_calls
from model_worker.translate import SamplingDefaults, as_api_error, sampling_params
from wire.answers import Delta, PromptEcho
from wire.chat import SamplingOptions, TemplateKwargs
from wire.embeddings import PoolingFields
from wire.errors import ApiError, ErrorCode
from wire.workers import Capacity, Load, ModelCard, PoolPicture


class PagedEngine:
    """Translates between wire types and the engine's own. Its only state is a counter."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        card: ModelCard,
        capacity: Capacity,
        defaults: SamplingDefaults,
        default_max_tokens: int,
        chat_template_kwargs: TemplateKwargs,
        tool_format: Literal["auto", "template"] | ToolFormat = "auto",
    ) -> None:
        """tool_format: as the worker's setting of that name."""
        self.card = card
        self.capacity = capacity
        self._engine = engine
        self._tokenizer = engine.tokenizer.with_plain_chat() if card.chat == "plain" else engine.tokenizer
        self._defaults = defaults
        self._default_max_tokens = default_max_tokens
        self._chat_template_kwargs = chat_template_kwargs
        self._tool_format: ToolFormat | None = (
            None if tool_format == "auto" or tool_format == "template" else tool_format
        )
        self._tells_tools = tool_format in ("auto", PROMPTED_FORMAT)  # also where the chat template knows none
        self._adapter = ""  # its name; empty: the base alone
        self._ordinals = count()

    @property
    def hosting(self) -> None:
        """None: it computes itself."""
        return None

    @property
    def operators(self) -> str:
        """The operators in use: the C++ operators with their instruction set, Triton, or torch."""
        return self._engine.info.operators

    @property
    def is_alive(self) -> bool:
        """Whether new requests are served."""
        return self._engine.is_alive

    def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
        """Token ids of a text or of a conversation. Raises ApiError for messages that the model's template rejects."""
        if isinstance(source, tuple):
            return Prompt(source=source, token_ids=source)
        try:
            if isinstance(source, str):
                token_ids = self._tokenizer.encode(source, add_special_tokens=add_special_tokens is not False)
                return Prompt(source=source, token_ids=tuple(token_ids))
            return self._render(source)
        except EngineError as error:
            raise as_api_error(error) from None

    def _render(self, conversation: Conversation) -> Prompt:
        """The prompt of a conversation. Raises InvalidRequest."""
        tokenizer, tools = self._tokenizer, tool_request(conversation)
        token_ids = tokenizer.render_chat(
            template_messages(conversation.messages),
            conversation.add_generation_prompt,
            self._chat_template_kwargs | tokenizer.template_kwargs(conversation.chat_template_kwargs),
            tools=tools.shown,
            tells_tools=self._tells_tools,
            continue_final_message=conversation.continue_final_message,
        )
        answer = tools.answer(
            tokenizer, token_ids, tool_format=self._tool_format, is_continued=conversation.continue_final_message
        )
        return Prompt(conversation, tuple(token_ids), answer.thoughts, answer.tool_calls, answer.constraint)

    def echo(self, prompt: Prompt) -> PromptEcho:
        """The text as it was given, or that of the tokens with the special ones in it."""
        token_ids = prompt.token_ids
        text = prompt.source
        if not isinstance(text, str):
            text = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        return PromptEcho(text, token_ids, named_token(token_ids[0], 0.0, self._tokenizer.token_bytes))

    def token_texts(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        """The text of each token, with U+FFFD for parts of characters."""
        known = self._tokenizer.vocab_size
        if any(token_id >= known for token_id in token_ids):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"tokens: ids must be below {known}", param="tokens")
        return tuple(self._tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in token_ids)

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        *,
        request_id: str,
        resume_token_ids: tuple[int, ...] = (),
        cache_salt: str = "",
    ) -> AsyncGenerator[Piece, None]:
        """Submit a request and yield its pieces: Accepted, deltas, Finished. Raises ApiError.

        Closing the generator aborts the request.
        """
        params = sampling_params(
            sampling,
            self._defaults,
            request_id=request_id,
            room=self.card.context_length - len(prompt.token_ids),
            default_max_tokens=self._default_max_tokens,
            thoughts=prompt.thoughts,
        )
        if self.card.chat == "plain" and isinstance(prompt.source, Conversation):
            params = replace(params, stop=(*params.stop, *PLAIN_STOPS))
        params = with_bad_words(params, self._tokenizer.encode)
        if prompt.tool_calls is not None:
            params = replace(params, tool_calls=replace(prompt.tool_calls, id_seed=request_id))
        is_of_tools = prompt.constraint is not None and params.constraint is None
        if is_of_tools:
            params = replace(params, constraint=prompt.constraint)
        field = "tools" if is_of_tools else _param_of(sampling)
        # A new id per attempt: a controller may send a request again before the engine has aborted the first attempt.
        own_id = f"{request_id}#{next(self._ordinals)}"
        with _api_errors(field):
            if params.needs_masks:  # in a thread, since it compiles the constraint
                await asyncio.to_thread(self._engine.check_request, prompt.token_ids, params, resume_token_ids)
            async with self._engine.generate(
                prompt.token_ids,
                params,
                request_id=own_id,
                resume_token_ids=resume_token_ids,
                cache_salt=cache_salt.encode(),
                adapter=self._adapter,
            ) as stream:
                yield Accepted()
                usage = SampleUsage(params.n)
                has_begun = False
                async for delta in stream:
                    if params.n > 1 or _says_something(delta):
                        said = self._delta(delta, is_one=params.n == 1)
                        if not has_begun:
                            has_begun, said.prompt_counts = True, (delta.num_prompt_tokens, delta.num_cached_tokens)
                        yield said
                    if delta.finish_reason is not None and (finished := usage.take(delta)) is not None:
                        yield finished

    def _delta(self, delta: RequestDelta, *, is_one: bool) -> Delta:
        """A delta in wire types. Called for every token."""
        token_bytes = self._tokenizer.token_bytes
        return Delta(
            delta.text,
            delta.token_ids,
            delta.thoughts,
            delta.queue_s,
            delta.index,
            None if delta.logprobs is None else token_logprobs(delta.logprobs, token_bytes),
            None if delta.prompt_logprobs is None else prompt_logprobs(delta.prompt_logprobs, token_bytes),
            tool_calls=wire_calls(delta.tool_calls),
            finish_reason=None if is_one else delta.finish_reason,
        )

    async def embed(
        self, token_ids: tuple[int, ...], pooling: PoolingFields, *, request_id: str, cache_salt: str = ""
    ) -> tuple[float, ...]:
        """As Engine.embed."""
        default = self._engine.info.pooling
        params = PoolingParams(
            pooling.pooling or default.pooling,
            normalize=default.normalize if pooling.normalize is None else pooling.normalize,
            dimensions=pooling.dimensions,
        )
        own_id = f"{request_id}#{next(self._ordinals)}"
        try:
            found = await self._engine.embed(
                token_ids, params, request_id=own_id, cache_salt=cache_salt.encode(), adapter=self._adapter
            )
        except EngineError as error:
            raised = as_api_error(error)
            if raised.param is not None and raised.param != "dimensions":
                raised.param = "input"
            raise raised from None
        return found.vector

    def load(self) -> Load:
        """The engine's counters in wire types."""
        return load_of(self._engine.stats())

    async def picture(self) -> PoolPicture | None:
        """The page pool in at most MAX_CELLS cells. Raises ApiError after the engine has stopped."""
        try:
            return pool_picture(await self._engine.picture(MAX_CELLS))
        except EngineError as error:
            raise as_api_error(error) from None

    async def with_adapter(self, name: str, folder: str) -> "PagedEngine":
        """The same engine with the LoRA adapter of a PEFT folder, as a model of that name. Raises BadCheckpoint."""
        try:
            info = await self._engine.add_adapter(name, folder)
        except EngineError as error:
            raise BadCheckpoint(f"cannot load the adapter {name}: {one_line(error)}") from None
        other = copy.copy(self)
        other._adapter = name
        revision = hashlib.sha256(f"{self.card.revision} {info.digest}".encode()).hexdigest()[: len(self.card.revision)]
        num_parameters = self.card.num_parameters + info.num_parameters
        other.card = self.card.model_copy(update={"name": name, "revision": revision, "num_parameters": num_parameters})
        return other

    async def shutdown(self) -> None:
        """Abort what runs and end the engine; of an adapter, wait until its answers have ended and unload it."""
        if not self._adapter:
            await self._engine.shutdown()
            return
        with contextlib.suppress(AdapterError, EngineDead):  # it is gone already, or the engine is
            await self._engine.remove_adapter(self._adapter)


def _says_something(delta: RequestDelta) -> bool:
    return bool(delta.text or delta.token_ids or delta.thoughts or delta.tool_calls or delta.prompt_logprobs)


@contextlib.contextmanager
def _api_errors(field: str) -> Iterator[None]:
    """Errors of the engine become ApiError. `field`: of the client's request, named where the engine names the
    constraint."""
    try:
        yield
    except EngineError as error:
        raised = as_api_error(error)
        if isinstance(error, InvalidRequest) and error.param == "constraint":
            raised.param = field
        raise raised from None


def _param_of(sampling: SamplingOptions) -> str:
    """The field of the client's request that steers its tokens."""
    return "thinking_budget" if sampling.constraint is None else sampling.constraint.param
