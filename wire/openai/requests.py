"""Bodies of the OpenAI chat-completions and completions requests that Agon serves. All of it is pure: controller and
worker share it, so they give the same answers.

A parameter that is known but not served is refused, never ignored: an accepted request is served as it was asked.
"""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from wire.chat import ChatMessage, SamplingFields, SamplingOptions, TemplateKwargs
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.openai.messages import MAX_MESSAGES, RequestMessage, RequestPart
from wire.workers import GenerateRequest


class StreamOptions(RequestPart):
    """Options of a stream; usage is sent only if asked for."""

    include_usage: bool | None = Field(default=None, description="a last chunk with token counts")


class ResponseFormat(RequestPart):
    """The format of the answer: text, the only one that is served."""

    type: Literal["text"]


#: Fields of a request that are options of sampling under the same name.
_SAMPLING = tuple(name for name in SamplingOptions.model_fields if name != "logprobs")


class _CompletionRequest(SamplingFields):
    """Fields that both kinds of completion share. null means absent everywhere, as OpenAI clients expect."""

    model: str = Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")
    logit_bias: Any = Field(default=None, description="token id to a number from -100 to 100, at most 300 of them")
    stop: Any = Field(default=None, description="a string or up to 16 strings of at most 256 characters")
    stop_token_ids: Any = Field(default=None, description="up to 64 token ids")
    stream: bool | None = Field(default=None, description="answer as server-sent events")
    stream_options: StreamOptions | None = Field(default=None, description="only with stream")
    n: Literal[1] | None = Field(default=None, description="number of answers: one")
    include_stop_str_in_output: None = Field(default=None, description="not served")
    skip_special_tokens: None = Field(default=None, description="not served")
    user: str | None = Field(default=None, max_length=512, description="accepted and not used")

    @model_validator(mode="after")
    def _usable_sampling(self) -> "_CompletionRequest":
        self.sampling()
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self

    def sampling(self) -> SamplingOptions:
        """The sampling parameters of the request; raises ValueError for values that cannot be served."""
        return SamplingOptions(**{name: getattr(self, name) for name in _SAMPLING})

    @property
    def wants_usage(self) -> bool:
        """True if the stream is to end with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ChatCompletionRequest(_CompletionRequest):
    """Body of `POST /v1/chat/completions`."""

    messages: tuple[RequestMessage, ...] = Field(
        min_length=1, max_length=MAX_MESSAGES, fail_fast=True, description="the conversation, oldest message first"
    )
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="wins over max_tokens")
    chat_template_kwargs: TemplateKwargs | None = Field(
        default=None, description='values for the model\'s chat template, such as {"enable_thinking": false}'
    )
    logprobs: Literal[False] | None = Field(default=None, description="not served")
    response_format: ResponseFormat | None = Field(default=None, description="only text")
    store: bool | None = Field(default=None, description="accepted and not used")
    metadata: dict[str, str] | None = Field(default=None, description="accepted and not used")

    def sampling(self) -> SamplingOptions:
        """As in the base; max_completion_tokens replaces its deprecated name max_tokens."""
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return super().sampling().model_copy(update={"max_tokens": limit})

    def generate_request(self, request_id: str) -> GenerateRequest:
        """The request as a worker gets it."""
        return GenerateRequest(
            request_id=request_id,
            messages=self.chat_messages(),
            chat_template_kwargs=self.chat_template_kwargs or {},
            sampling=self.sampling(),
        )

    def chat_messages(self) -> tuple[ChatMessage, ...]:
        """The conversation as the engine sees it."""
        return tuple(message.as_chat_message() for message in self.messages)


class CompletionRequest(_CompletionRequest):
    """Body of `POST /v1/completions`: one text prompt."""

    prompt: str = Field(min_length=1, description="the text to continue; a list with one string is taken, too")
    echo: Literal[False] | None = Field(default=None, description="not served")
    logprobs: None = Field(default=None, description="not served")
    best_of: Literal[1] | None = Field(default=None, description="only one")
    suffix: None = Field(default=None, description="not served")

    @field_validator("prompt", mode="before")
    @classmethod
    def _single_prompt(cls, value: object) -> object:
        return value[0] if isinstance(value, list) and len(value) == 1 else value

    def generate_request(self, request_id: str) -> GenerateRequest:
        """The request as a worker gets it."""
        return GenerateRequest(request_id=request_id, prompt=self.prompt, sampling=self.sampling())
