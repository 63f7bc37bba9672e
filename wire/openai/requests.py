"""Bodies of the OpenAI chat-completions and completions requests that Agon serves. All of it is pure: controller and
worker share it, so they give the same answers.

A parameter that would change the answer and is not served is refused, never ignored (tolerance.py).
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from wire.chat import (
    MAX_LOGPROBS,
    MAX_TOKENS,
    CacheSalt,
    ChatMessage,
    SamplingFields,
    SamplingOptions,
    TemplateKwargs,
)
from wire.constraints import OutputConstraint
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.openai.fields import CHAT, COMPLETIONS, STREAM_OPTIONS
from wire.openai.messages import MAX_MESSAGES, RequestMessage
from wire.openai.names import Names
from wire.openai.prompts import Prompts
from wire.openai.shape import AnswerShape
from wire.openai.structured import ConstraintFields, ResponseFormat
from wire.openai.tolerance import Known, Tolerant, invalid, served_by
from wire.tools import AllowedToolsChoice, NamedToolChoice, RequestedChoice, ToolChoice, ToolDefinitions
from wire.workers import GenerateRequest

MAX_CHOICES = 512  #: of one answer

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def _bounded(value: Any) -> Any:
    """A bound that no context reaches is none: such as LM Studio's clients send (-1) and those that ask for all there
    is. What does not fit into the context is cut there."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    return None if value == -1 else min(value, MAX_TOKENS)


#: A bound of the answer; one above what fits into the context is cut to it.
TokenBound = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_bounded)]


class StreamOptions(Tolerant):
    """Options of a stream; usage is sent only if asked for."""

    known: ClassVar[Mapping[str, Known]] = STREAM_OPTIONS

    include_usage: bool | None = Field(default=None, description="a last chunk with token counts")
    continuous_usage_stats: bool | None = Field(default=None, description="token counts so far in every chunk")


class _CompletionRequest(Tolerant, ConstraintFields, SamplingFields):
    """Fields that both kinds of completion share. null and empty mean absent everywhere, as OpenAI clients expect."""

    model: str = Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")
    stream: bool | None = Field(default=None, description="answer as server-sent events")
    stream_options: StreamOptions | None = Field(default=None, description="only with stream")
    add_special_tokens: bool | None = Field(
        default=None,
        description="whether the tokenizer adds its own, as at the beginning; null: to a prompt, not to a chat",
    )
    truncate_prompt_tokens: int | None = Field(
        default=None, ge=-1, le=2**31, description="keep so many tokens of the prompt's end; -1: what the context holds"
    )
    return_token_ids: bool | None = Field(default=None, description="ids of prompt and answer beside the texts")
    return_tokens_as_token_ids: bool | None = Field(
        default=None, description="tokens in logprobs are written `token_id:7`"
    )
    cache_salt: CacheSalt | None = Field(
        default=None, description="requests share cached prefixes only where these are equal"
    )

    @model_validator(mode="after")
    def _usable(self) -> "_CompletionRequest":
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "only allowed when stream is true")
        if not self.is_beam_search and self.length_penalty not in (None, 1.0):
            raise invalid("length_penalty", "only allowed in a beam search")
        if not self.is_beam_search and self.early_stopping:
            raise invalid("early_stopping", "only allowed in a beam search")
        if self.is_beam_search and self.use_beam_search is False:
            raise invalid("beam_width", "only allowed in a beam search")
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise invalid("best_of", "must be at least n")
        if self.truncate_prompt_tokens == 0:
            raise invalid("truncate_prompt_tokens", "a prompt needs at least one token")
        return self

    def _sampling(self, **own: int | OutputConstraint | None) -> SamplingOptions:
        """The sampling parameters, which are checked already; `own`: those that this kind of request names itself."""
        given = {name: getattr(self, name) for name in SamplingFields.model_fields}
        if self.thinking_budget is None:
            given["thinking_budget"] = None if self.thinking_token_budget == -1 else self.thinking_token_budget
        return SamplingOptions.model_construct(**given | own)

    @property
    def _wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def _wants_continuous_usage(self) -> bool:
        return (
            self._wants_usage and self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)
        )


class ChatCompletionRequest(_CompletionRequest):
    """Body of `POST /v1/chat/completions`."""

    known: ClassVar[Mapping[str, Known]] = CHAT

    messages: tuple[RequestMessage, ...] = Field(
        min_length=1, max_length=MAX_MESSAGES, fail_fast=True, description="the conversation, oldest message first"
    )
    max_tokens: TokenBound = Field(default=None, description="bound of the answer, cut to what fits; -1: none")
    max_completion_tokens: TokenBound = Field(default=None, description="wins over max_tokens")
    chat_template_kwargs: TemplateKwargs | None = Field(
        default=None, description='values for the model\'s chat template, such as {"enable_thinking": false}'
    )
    reasoning_effort: ReasoningEffort | None = Field(
        default=None, description="a value for chat templates that read it; others are not changed by it"
    )
    logprobs: bool | None = Field(default=None, description="log probabilities of the answer's tokens")
    top_logprobs: int | None = Field(
        default=None, ge=0, le=MAX_LOGPROBS, description="those of so many of the likeliest tokens, too"
    )
    add_generation_prompt: bool | None = Field(default=None, description="the template opens an answer; null: true")
    continue_final_message: bool | None = Field(
        default=None, description="the last message is the beginning of the answer, which goes on from there"
    )
    tools: ToolDefinitions | None = Field(default=None, description="tools that the model may call")
    tool_choice: RequestedChoice | None = Field(
        default=None, description="null: auto where there are tools; allowed_tools leaves the others out"
    )
    parallel_tool_calls: bool | None = Field(default=None, description="false: one call at most")
    response_format: ResponseFormat | None = Field(default=None, description="text, or what the answer must match")

    @model_validator(mode="after")
    def _consistent(self) -> "ChatCompletionRequest":
        if self.top_logprobs and self.logprobs is None:
            raise invalid("top_logprobs", "only allowed when logprobs is true")
        if self.continue_final_message and self.add_generation_prompt:
            raise invalid("continue_final_message", "the answer is either continued or opened by add_generation_prompt")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise invalid("continue_final_message", "the last message must be of the assistant")
        self._check_tool_choice()
        if self._must_call and self.constraint() is not None:
            raise invalid("tool_choice", "an answer that must be a call has no other constraint")
        self.constraint(self.response_format)
        return self

    def _check_tool_choice(self) -> None:
        choice = self.tool_choice
        names = {tool.function.name for tool in self.tools or ()}
        if not names and choice not in (None, "none", "auto"):
            raise invalid("tool_choice", "there are no tools to choose from")
        chosen: tuple[NamedToolChoice, ...] = ()
        if isinstance(choice, NamedToolChoice):
            chosen = (choice,)
        elif isinstance(choice, AllowedToolsChoice):
            chosen = choice.allowed_tools.tools
        missing = {one.function.name for one in chosen} - names
        if missing:
            raise invalid("tool_choice", f"{min(missing)!r} is none of the tools")

    @property
    def _choice(self) -> ToolChoice | None:
        """The choice among the tools that the model sees."""
        choice = self.tool_choice
        return choice.allowed_tools.mode if isinstance(choice, AllowedToolsChoice) else choice

    @property
    def _shown_tools(self) -> ToolDefinitions:
        """The tools that the model sees."""
        tools, choice = self.tools or (), self.tool_choice
        if not isinstance(choice, AllowedToolsChoice):
            return tools
        names = {one.function.name for one in choice.allowed_tools.tools}
        return tuple(tool for tool in tools if tool.function.name in names)

    @property
    def _must_call(self) -> bool:
        return self._choice not in (None, "none", "auto")

    def sampling(self) -> SamplingOptions:
        """The sampling parameters; max_completion_tokens replaces its deprecated name max_tokens. An answer that must
        be a call has no text that response_format could be for."""
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return self._sampling(
            max_tokens=limit,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            constraint=None if self._must_call else self.constraint(self.response_format),
        )

    @property
    def shape(self) -> AnswerShape:
        """The form of the answer."""
        return AnswerShape(
            kind="chat",
            n=self.n or 1,
            logprobs=bool(self.logprobs),
            ids_as_tokens=bool(self.return_tokens_as_token_ids),
            token_ids=bool(self.return_token_ids),
            usage=self._wants_usage,
            continuous_usage=self._wants_continuous_usage,
        )

    def generate_request(self, request_id: str) -> GenerateRequest:
        """The request as a worker gets it."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort is not None else {}
        return GenerateRequest(
            request_id=request_id,
            messages=self.chat_messages(),
            chat_template_kwargs=effort | (self.chat_template_kwargs or {}),
            tools=self._shown_tools,
            tool_choice=self._choice,
            parallel_tool_calls=self.parallel_tool_calls is not False,
            add_generation_prompt=self.add_generation_prompt is not False and not self.continue_final_message,
            continue_final_message=bool(self.continue_final_message),
            sampling=self.sampling(),
            add_special_tokens=self.add_special_tokens,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            return_prompt=bool(self.return_token_ids) or self._wants_continuous_usage,
            cache_salt=self.cache_salt or "",
        )

    @property
    def names(self) -> Names:
        """How errors of the engine name the request's fields."""
        return Names({} if self.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"})

    def chat_messages(self) -> tuple[ChatMessage, ...]:
        """The conversation as the engine sees it."""
        return tuple(message.as_chat_message() for message in self.messages)


class CompletionRequest(_CompletionRequest):
    """Body of `POST /v1/completions`."""

    known: ClassVar[Mapping[str, Known]] = {
        **served_by(ChatCompletionRequest, "/v1/chat/completions"),
        **COMPLETIONS,
    }

    prompt: Prompts
    max_tokens: Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_bounded)] = Field(
        default=None, description="bound of the answer, cut to what fits; 0: none, with echo; -1: no bound"
    )
    echo: bool | None = Field(default=None, description="the text begins with the prompt")
    response_format: ResponseFormat | None = Field(default=None, description="text, or what the answer must match")
    logprobs: int | None = Field(
        default=None, ge=0, le=MAX_LOGPROBS, description="log probabilities of so many of the likeliest tokens, too"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "CompletionRequest":
        if self.max_tokens == 0 and not self.echo:
            raise invalid("max_tokens", "0 is only allowed with echo")
        if len(self.prompt) * (self.n or 1) > MAX_CHOICES:
            raise invalid("n", f"prompts times n may be at most {MAX_CHOICES}")
        self.constraint(self.response_format)
        return self

    def sampling(self) -> SamplingOptions:
        """The sampling parameters."""
        return self._sampling(
            logprobs=self.logprobs,
            prompt_logprobs=self.logprobs if self.echo else None,
            constraint=self.constraint(self.response_format),
        )

    @property
    def shape(self) -> AnswerShape:
        """The form of the answer."""
        return AnswerShape(
            kind="text",
            num_prompts=len(self.prompt),
            n=self.n or 1,
            logprobs=self.logprobs is not None,
            ids_as_tokens=bool(self.return_tokens_as_token_ids),
            token_ids=bool(self.return_token_ids),
            echo=bool(self.echo),
            usage=self._wants_usage,
            continuous_usage=self._wants_continuous_usage,
        )

    @property
    def names(self) -> Names:
        """How errors of the engine name the request's fields."""
        return Names({"messages": "prompt"})

    def generate_requests(self, request_id: str) -> tuple[GenerateRequest, ...]:
        """The request as workers get it: one for each prompt."""
        sampling = self.sampling()
        return_prompt = bool(self.echo or self.return_token_ids) or self._wants_continuous_usage
        return tuple(
            GenerateRequest(
                request_id=request_id if index == 0 else f"{request_id}.{index}",
                prompt=prompt if isinstance(prompt, str) else None,
                prompt_token_ids=None if isinstance(prompt, str) else prompt,
                sampling=sampling,
                add_special_tokens=self.add_special_tokens,
                truncate_prompt_tokens=self.truncate_prompt_tokens,
                return_prompt=return_prompt,
                cache_salt=self.cache_salt or "",
            )
            for index, prompt in enumerate(self.prompt)
        )
