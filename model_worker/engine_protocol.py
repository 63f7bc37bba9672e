"""The engine as the worker sees it: prompts in, a stream of pieces out, and a snapshot of its load.

Implemented by PagedEngine (Agon's own engine), EchoEngine (for development and tests) and RemoteEngine (another
server). Nothing here imports torch. Errors that concern one request are raised as ApiError.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.sampling_params import Constraint, ThoughtTags, ToolCallSyntax
from wire.answers import Delta, Finished, PromptEcho
from wire.chat import ChatMessage, SamplingOptions, TemplateKwargs
from wire.embeddings import PoolingFields
from wire.tools import ToolChoice, ToolDefinition
from wire.workers import Capacity, GenerateRequest, Load, ModelCard, PoolPicture


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages to answer, the tools that the answer may call, and values for variables of the chat template."""

    messages: tuple[ChatMessage, ...]
    chat_template_kwargs: TemplateKwargs = field(default_factory=dict)
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False


#: A conversation, plain text to go on with, or the tokens of such a text.
PromptSource = Conversation | str | tuple[int, ...]


def source_of(asked: GenerateRequest) -> PromptSource:
    """What a request asks to continue."""
    if asked.messages is not None:
        return Conversation(
            asked.messages,
            asked.chat_template_kwargs,
            asked.tools,
            asked.tool_choice,
            asked.parallel_tool_calls,
            asked.add_generation_prompt,
            asked.continue_final_message,
        )
    return asked.prompt if asked.prompt is not None else asked.prompt_token_ids or ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt. `token_ids` is empty where only the other server knows them (RemoteEngine). `thoughts`:
    between which tags the model thinks; None for plain text, whose continuation is given as it is. `tool_calls`: how
    calls are read out of the answer; None: they are text. `constraint`: what the answer must be, to be a call."""

    source: PromptSource
    token_ids: tuple[int, ...]
    thoughts: ThoughtTags | None = None
    tool_calls: ToolCallSyntax | None = None
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request is in the engine's queue. Failures after this come as part of the stream."""


Piece = Accepted | Delta | Finished


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of a model without loading it. `kv_tokens` of the capacity is 0: the pool is not there yet."""

    card: ModelCard
    capacity: Capacity
    weights_bytes: int
    pool_bytes: int  #: the page pool that it would get now


@dataclass(frozen=True, slots=True)
class Hosting:
    """What is known of another server that answers for a model. `failures`: failed requests by HTTP status ("none":
    there was no answer) and reason. `is_closed`: no request is taken now. `problem`: what the operator should know.
    `tokens` and `cost`: of this UTC day."""

    failures: Mapping[tuple[str, str], int]
    is_closed: bool
    problem: str | None
    tokens: int
    cost: float


class Engine(Protocol):
    """An engine that is loaded. Used on the event loop, except for `tokenise`."""

    @property
    def card(self) -> ModelCard:
        """The model, as controllers show and route it. Constant."""
        ...

    @property
    def capacity(self) -> Capacity:
        """How many requests and tokens fit. Constant."""
        ...

    @property
    def operators(self) -> str | None:
        """The operators that compute the model on this machine; None for RemoteEngine and EchoEngine."""
        ...

    @property
    def hosting(self) -> Hosting | None:
        """The other server of RemoteEngine; None for engines that compute themselves."""
        ...

    @property
    def is_alive(self) -> bool:
        """False once the engine can answer no more requests; it never becomes True again."""
        ...

    def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
        """Render and encode. Raises ApiError. Thread-safe and touches no engine state, because long prompts are encoded
        in another thread."""
        ...

    def echo(self, prompt: Prompt) -> PromptEcho:
        """The prompt as text and tokens. Raises UNSUPPORTED_PARAMETER where another server knows them."""
        ...

    def token_texts(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        """The text of each token by itself. Raises INVALID_REQUEST for ids outside the vocabulary, or
        UNSUPPORTED_PARAMETER where another server knows them. Thread-safe."""
        ...

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        *,
        request_id: str,
        resume_token_ids: tuple[int, ...] = (),
        cache_salt: str = "",
    ) -> AsyncGenerator[Piece, None]:
        """Yields Accepted, then deltas, then Finished. Raises ApiError: instead of Accepted for a refusal, later for a
        failure. With `resume_token_ids`, the first tokens of the answer, it continues after them. An engine that keeps
        the prefixes of prompts shares them only among requests of the same `cache_salt`. With several samples
        (`sampling.n`), the last delta of each has its finish reason.

        Closing the generator, at any point, aborts the request within one step and frees its pages.
        """
        ...

    async def embed(
        self, token_ids: tuple[int, ...], pooling: PoolingFields, *, request_id: str, cache_salt: str = ""
    ) -> tuple[float, ...]:
        """The vector of one input. Raises ApiError, also where the engine gives none. Cancelling it aborts the
        request."""
        ...

    def load(self) -> Load:
        """A snapshot. Cheap: called at every heartbeat, probe and scrape."""
        ...

    async def picture(self) -> PoolPicture | None:
        """The page pool in address order; None where the engine has none of its own. May wait for a step to end."""
        ...

    async def shutdown(self) -> None:
        """Abort the requests in progress and stop. Idempotent."""
        ...
