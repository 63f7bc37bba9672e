"""Agon's own engine behind the worker's protocol: the only module of the worker that loads torch."""

import asyncio
import contextlib
import copy
import hashlib
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import torch

from engine.async_engine import AsyncEngine, RequestStream
from engine.config import EngineConfig
from engine.errors import (
    AdapterError,
    CheckpointError,
    CheckpointUnavailable,
    EngineDead,
    EngineError,
    InvalidRequest,
    NotDivisible,
    OperatorsUnavailable,
    RankLost,
)
from engine.hosting import EngineHost
from engine.json_files import read_object
from engine.loader import find_model_folder
from engine.memory.ledger import PoolCell as EnginePoolCell
from engine.model_info import ModelInfo
from engine.request import RequestDelta
from engine.runner import choose_device, describe_checkpoint, follow_if_told_to, share_of_free_memory
from engine.sampling_params import PoolingParams, SamplingParams, ToolFormat
from engine.stats import EngineStats
from engine.text.bad_words import with_bad_words
from model_worker.answer_end import SampleUsage
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Accepted, Conversation, Description, Piece, Prompt, PromptSource
from model_worker.errors import BadCheckpoint, EngineBroken, LoadFailed, StartError
from model_worker.logprobs import named_token, prompt_logprobs, token_logprobs
from model_worker.tool_requests import template_messages, tool_request, wire_calls
from model_worker.translate import SamplingDefaults, as_api_error, sampling_params
from wire.answers import Delta, PromptEcho
from wire.chat import SamplingOptions, TemplateKwargs
from wire.embeddings import PoolingFields
from wire.errors import ApiError, ErrorCode
from wire.workers import Capacity, Load, ModelCard, PageCounts, PoolPicture

#: Loading failed for a reason that may pass, or for one that lies in the model or its settings.
_MAY_PASS = (CheckpointUnavailable, MemoryError, torch.OutOfMemoryError, OSError)
_LOAD_ERRORS = (*_MAY_PASS, CheckpointError, NotDivisible, OperatorsUnavailable, ValueError)
MAX_CELLS = 256  #: cells of a picture of the page pool: 8 rows of 32, about 3 kB


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
        tool_format: ToolFormat | None = None,
    ) -> None:
        self.card = card
        self.capacity = capacity
        self._engine = engine
        self._tokenizer = engine.tokenizer
        self._defaults = defaults
        self._default_max_tokens = default_max_tokens
        self._chat_template_kwargs = chat_template_kwargs
        self._tool_format = tool_format
        self._adapter = ""  # its name; empty: the base alone
        self._ordinals = count()

    @staticmethod
    def follow_if_told_to(settings: WorkerSettings) -> bool:
        """See model_worker.engines.follow_if_told_to."""
        try:
            return follow_if_told_to(settings.engine_config)
        except RankLost as error:
            raise EngineBroken(_one_line(error)) from None
        except _LOAD_ERRORS as error:
            raise _start_error(settings, error) from None

    @staticmethod
    def describe(settings: WorkerSettings) -> Description:
        """What is known of the model without loading it. Reads files. Raises BadCheckpoint or LoadFailed."""
        try:
            found = describe_checkpoint(settings.engine_config)
        except _LOAD_ERRORS as error:
            raise _start_error(settings, error) from None
        capacity = Capacity(
            max_running=found.config.step_limits.max_running,
            max_queued=found.config.max_queued_requests,
            kv_tokens=0,
        )
        card = _card(settings, found.info, found.info.context_length)
        return Description(card, capacity, found.weights_bytes, found.pool_bytes)

    @classmethod
    async def load_checkpoint(cls, settings: WorkerSettings, host: EngineHost | None = None) -> "PagedEngine":
        """Load the model, in `host`, in a thread or in a process of its own. Raises BadCheckpoint or LoadFailed."""
        try:
            config = settings.engine_config
            defaults = await asyncio.to_thread(_sampling_defaults, config.model)
            if host is not None:
                engine = await host.add(settings.model_name, config)
            elif await asyncio.to_thread(has_own_process, settings):  # the driver of a GPU takes its time to answer
                engine = await AsyncEngine.in_own_process(config, "model_worker.engine_process")
            else:
                engine = await AsyncEngine.from_config(config)
        except (*_LOAD_ERRORS, RankLost, EngineDead, InvalidRequest) as error:
            raise _start_error(settings, error) from None
        info, stats = engine.info, engine.stats()
        return cls(
            engine,
            card=_card(settings, info, engine.limits.max_model_len),
            capacity=Capacity(
                max_running=engine.step_limits.max_running,
                max_queued=config.max_queued_requests,
                kv_tokens=_pool_tokens(stats, config.page_tokens),
            ),
            defaults=defaults,
            default_max_tokens=settings.default_max_tokens,
            chat_template_kwargs=settings.chat_template_kwargs,
            tool_format=None if settings.tool_format == "auto" else settings.tool_format,
        )

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
        if sampling.max_tokens is not None and sampling.max_tokens > self.card.context_length:
            # A value above the room after the prompt is cut to it; a value above the whole context is a mistake.
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"max_tokens: at most {self.card.context_length}, the context of this model",
                param="max_tokens",
            )
        params = sampling_params(
            sampling,
            self._defaults,
            request_id=request_id,
            room=self.card.context_length - len(prompt.token_ids),
            default_max_tokens=self._default_max_tokens,
            thoughts=prompt.thoughts,
        )
        params = with_bad_words(params, self._tokenizer.encode)
        if prompt.tool_calls is not None:
            params = replace(params, tool_calls=replace(prompt.tool_calls, id_seed=request_id))
        is_of_tools = prompt.constraint is not None and params.constraint is None
        if is_of_tools:
            params = replace(params, constraint=prompt.constraint)
        if params.needs_masks:
            await self._check_constraint(params, "tools" if is_of_tools else _param_of(sampling))
        async with self._submitted(prompt.token_ids, params, request_id, resume_token_ids, cache_salt) as stream:
            yield Accepted()
            usage = SampleUsage(params.n)
            async for delta in stream:
                if params.n > 1 or _says_something(delta):
                    yield self._delta(delta, is_one=params.n == 1)
                if delta.finish_reason is not None and (finished := usage.take(delta)) is not None:
                    yield finished

    async def _check_constraint(self, params: SamplingParams, param: str) -> None:
        """Compile the constraint in a thread. Raises ApiError, which names the field of the client's request."""
        try:
            await asyncio.to_thread(self._engine.check_constraint, params)
        except EngineError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error), param=param) from None

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

    @asynccontextmanager
    async def _submitted(
        self,
        token_ids: tuple[int, ...],
        params: SamplingParams,
        request_id: str,
        resume_token_ids: tuple[int, ...],
        cache_salt: str,
    ) -> AsyncGenerator[RequestStream, None]:
        """The stream of a submitted request. Errors of the engine become ApiError; leaving the context aborts it."""
        # A new id per attempt: a controller may send a request again before the engine has aborted the first attempt.
        own_id = f"{request_id}#{next(self._ordinals)}"
        try:
            async with self._engine.generate(
                token_ids,
                params,
                request_id=own_id,
                resume_token_ids=resume_token_ids,
                cache_salt=cache_salt.encode(),
                adapter=self._adapter,
            ) as stream:
                yield stream
        except EngineError as error:
            raise as_api_error(error) from None

    def load(self) -> Load:
        """The engine's counters in wire types."""
        stats = self._engine.stats()
        return Load(
            running=stats.running,
            waiting=stats.waiting,
            swapped=stats.swapped,
            queued_tokens=stats.queued_tokens,
            tokens_per_s=stats.tokens_per_s,
            kv_bytes_used=stats.kv_bytes_used,
            kv_bytes_saved=stats.kv_bytes_saved,
            page_copies_total=stats.page_copies_total,
            kv_bytes_evictable=stats.kv_bytes_evictable,
            kv_bytes_total=stats.kv_bytes_total,
            mirror_bytes_used=stats.mirror_bytes_used,
            mirror_bytes_total=stats.mirror_bytes_total,
            steps_total=stats.steps_total,
            prompt_tokens_total=stats.prompt_tokens_total,
            generation_tokens_total=stats.generation_tokens_total,
            prefix_query_tokens_total=stats.prefix_query_tokens_total,
            prefix_hit_tokens_total=stats.prefix_hit_tokens_total,
            preemptions_total=stats.preemptions_total,
            swap_preemptions_total=stats.swap_preemptions_total,
            swapped_bytes_total=stats.swapped_bytes_total,
            draft_proposals_total=stats.draft_proposals_total,
            draft_tokens_total=stats.draft_tokens_total,
            accepted_draft_tokens_total=stats.accepted_draft_tokens_total,
            saved_steps_total=stats.saved_steps_total,
            pages=tuple(
                PageCounts(
                    layer_type=entry.layer_type,
                    used=entry.num_used,
                    evictable=entry.num_evictable,
                    empty=entry.num_empty + entry.num_in_empty_large,
                    page_bytes=entry.small_page_bytes,
                )
                for entry in stats.types
            ),
        )

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
            raise BadCheckpoint(f"cannot load the adapter {name}: {_one_line(error)}") from None
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


async def wake_hosted(host: EngineHost, settings: WorkerSettings) -> None:
    """Wake the model of `settings`. Raises BadCheckpoint or LoadFailed; it sleeps on then."""
    try:
        await host.wake(settings.model_name)
    except (*_LOAD_ERRORS, EngineDead) as error:
        raise _start_error(settings, error) from None


def most_pool_bytes(config: EngineConfig) -> int:
    """The most that a page pool of unstated size takes of the memory that is free now."""
    return share_of_free_memory(choose_device(config.device))


def _says_something(delta: RequestDelta) -> bool:
    return bool(delta.text or delta.token_ids or delta.thoughts or delta.tool_calls or delta.prompt_logprobs)


def _param_of(sampling: SamplingOptions) -> str:
    """The field of the client's request that steers its tokens."""
    return "thinking_budget" if sampling.constraint is None else sampling.constraint.param


def has_own_process(settings: WorkerSettings) -> bool:
    """Whether the engine gets a process of its own: on a GPU every microsecond of the interpreter that the HTTP side
    takes delays a step; on a CPU the operators compute without the interpreter, and a process only costs memory."""
    if settings.engine_process == "auto":
        return settings.engine_config.device != "cpu" and torch.cuda.is_available()
    return settings.engine_process == "on"


def pool_picture(cells: Sequence[EnginePoolCell]) -> PoolPicture:
    """Cells of the engine in wire types: an index for the layer type, percent for shares."""
    layer_types = sorted({cell.layer_type for cell in cells if cell.layer_type is not None})
    index_of = {name: index for index, name in enumerate(layer_types)}
    return PoolPicture(
        layer_types=tuple(layer_types),
        cells=tuple(
            (
                None if cell.layer_type is None else index_of[cell.layer_type],
                used := _percent(cell.used),
                min(_percent(cell.evictable), 100 - used),
            )
            for cell in cells
        ),
    )


def _percent(share: float) -> int:
    """A share in percent, rounded up, except that rounding errors of a sum of fractions do not round it up."""
    return min(100, math.ceil(100 * share - 1e-6))


def _card(settings: WorkerSettings, info: ModelInfo, context_length: int) -> ModelCard:
    return ModelCard(
        name=settings.model_name,
        revision=info.revision,
        architecture=info.architecture,
        num_parameters=info.num_parameters,
        dtype=info.precision,
        context_length=context_length,
        runs_on="cpu" if info.device == "cpu" else "gpu",
    )


def _sampling_defaults(model: str) -> SamplingDefaults:
    file = find_model_folder(model) / "generation_config.json"
    return SamplingDefaults.from_generation_config(read_object(file)) if file.is_file() else SamplingDefaults()


def _start_error(settings: WorkerSettings, error: Exception) -> StartError:
    kind = LoadFailed if isinstance(error, (*_MAY_PASS, RankLost, EngineDead)) else BadCheckpoint
    return kind(f"cannot load {settings.model_path}: {_one_line(error)}")


def _pool_tokens(stats: EngineStats, page_tokens: int) -> int:
    """Tokens that fit into an empty pool when every layer type keeps all of them."""
    if not stats.types:
        return 0
    pool_bytes = stats.types[0].num_in_empty_large * stats.types[0].small_page_bytes
    return pool_bytes * page_tokens // sum(entry.small_page_bytes for entry in stats.types)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
