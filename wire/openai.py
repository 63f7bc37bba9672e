"""The part of the OpenAI chat-completions and completions schema that Agon serves, and its translation to and from the
internal stream. All of it is pure: controller and worker share it, so they give the same answers.

A parameter that is known but not served is refused, never ignored: an accepted request is served as it was asked.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from wire.chat import ChatMessage, FinishReason, Role, SamplingFields, SamplingOptions, TemplateKwargs, Usage
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.sse import SseEvent, encode

MAX_MESSAGES = 1024


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(_Request):
    """A text part of a message's content."""

    type: Literal["text"]
    text: str


def _role(value: object) -> object:
    return "system" if value == "developer" else value


class RequestMessage(_Request):
    """One message of a chat request. `content` is a string or a list of text parts; images and tool messages are
    refused."""

    role: Annotated[Role, BeforeValidator(_role)] = Field(description="`developer` is taken as system")
    content: str | Annotated[tuple[TextPart, ...], Field(fail_fast=True)]
    reasoning_content: str | None = Field(
        default=None, description="thoughts of an earlier answer; only chat templates that read them get them"
    )
    name: str | None = Field(default=None, description="accepted and not used")

    def as_chat_message(self) -> ChatMessage:
        """The message as the engine sees it: text parts joined."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return ChatMessage(role=self.role, content=text, reasoning_content=self.reasoning_content)


class StreamOptions(_Request):
    """Options of a stream; usage is sent only if asked for."""

    include_usage: bool | None = Field(default=None, description="a last chunk with token counts")


class ResponseFormat(_Request):
    """The format of the answer: text, the only one that is served."""

    type: Literal["text"]


class _CompletionRequest(SamplingFields):
    """Fields that both kinds of completion share. null means absent everywhere, as OpenAI clients expect."""

    model: str = Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")
    logit_bias: Any = Field(default=None, description="token id to a number from -100 to 100, at most 300 of them")
    stop: Any = Field(default=None, description="a string or up to 16 strings of at most 256 characters")
    stop_token_ids: Any = Field(default=None, description="up to 64 token ids")
    stream: bool | None = Field(default=None, description="answer as server-sent events")
    stream_options: StreamOptions | None = Field(default=None, description="only with stream")
    n: Literal[1] | None = Field(default=None, description="number of answers: one")
    user: str | None = Field(default=None, max_length=512, description="accepted and not used")

    @model_validator(mode="after")
    def _usable_sampling(self) -> "_CompletionRequest":
        self.sampling()
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self

    def sampling(self) -> SamplingOptions:
        """The sampling parameters of the request; raises ValueError for values that cannot be served."""
        return SamplingOptions(**{name: getattr(self, name) for name in SamplingOptions.model_fields})

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


class ModelObject(BaseModel):
    """One entry of `GET /v1/models`. `max_model_len` is the context length in tokens, as vLLM names it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "agon"
    max_model_len: int | None = Field(default=None, description="context in tokens; null while the model is loaded")


class ModelList(BaseModel):
    """Answer of `GET /v1/models`."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


OpenAIFinish = Literal["stop", "length"]


class _Shape(BaseModel):
    """A part of what CompletionShaper makes. These models are for the documentation; the shaper makes plain dicts, and
    tests compare them with these."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Object(_Shape):
    id: str
    created: int = Field(description="Unix time")
    model: str


class AssistantMessage(_Shape):
    """The answer of a chat completion."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str | None = Field(
        default=None, description="what the model thought before it answered; absent if it did not"
    )


class ChatChoice(_Shape):
    """The one choice of a chat completion."""

    index: Literal[0]
    message: AssistantMessage
    logprobs: None
    finish_reason: OpenAIFinish


class ChatCompletion(_Object):
    """A whole answer of `POST /v1/chat/completions`."""

    object: Literal["chat.completion"]
    choices: tuple[ChatChoice]
    usage: Usage


class ChatDelta(_Shape):
    """What a chunk adds to the message; empty in the last one. Thoughts come before the content."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = Field(default=None, description="what the model thinks")


class ChatChunkChoice(_Shape):
    """The one choice of a chunk."""

    index: Literal[0]
    delta: ChatDelta
    logprobs: None
    finish_reason: OpenAIFinish | None = Field(description="null in all chunks but the last with a choice")


class ChatCompletionChunk(_Object):
    """One event of a streamed chat completion."""

    object: Literal["chat.completion.chunk"]
    choices: tuple[ChatChunkChoice, ...] = Field(description="one; none in the chunk that has usage")
    usage: Usage | None = Field(default=None, description="in one more chunk, with stream_options.include_usage")


class TextChoice(_Shape):
    """The one choice of a text completion or of its chunk."""

    index: Literal[0]
    text: str
    logprobs: None
    finish_reason: OpenAIFinish | None = Field(description="null in all chunks but the last with a choice")


class TextCompletion(_Object):
    """A whole answer of `POST /v1/completions`."""

    object: Literal["text_completion"]
    choices: tuple[TextChoice]
    usage: Usage


class TextCompletionChunk(_Object):
    """One event of a streamed text completion."""

    object: Literal["text_completion"]
    choices: tuple[TextChoice, ...] = Field(description="one; none in the chunk that has usage")
    usage: Usage | None = Field(default=None, description="in one more chunk, with stream_options.include_usage")


_OPENAI_FINISH: dict[FinishReason, OpenAIFinish] = {"stop": "stop", "length": "length", "abort": "stop"}


#: Compact and in the text's own characters. Made once: json.dumps with options makes an encoder at each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode_chunk(chunk: Mapping[str, Any]) -> bytes:
    """One object of a stream as a server-sent event."""
    return encode(SseEvent(_ENCODER.encode(chunk)))


class CompletionShaper:
    """Turns the pieces of one answer into OpenAI objects: chunks while streaming, or one final object."""

    def __init__(self, *, kind: Literal["chat", "text"], completion_id: str, model: str, created: int) -> None:
        self._kind = kind
        self._base = {"id": completion_id, "created": created, "model": model}

    def first_chunk(self) -> dict[str, Any] | None:
        """Chat streams open with the role; text streams have no such chunk."""
        if self._kind == "text":
            return None
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, finish_reason=None)

    def thought_chunk(self, thoughts: str) -> dict[str, Any]:
        """One delta of what the model thinks; only chats have thoughts."""
        return self._chunk({"delta": {"reasoning_content": thoughts}}, finish_reason=None)

    def text_chunk(self, text: str) -> dict[str, Any]:
        """One delta of the answer's text."""
        choice: dict[str, Any] = {"text": text} if self._kind == "text" else {"delta": {"content": text}}
        return self._chunk(choice, finish_reason=None)

    def finish_chunk(self, finish_reason: FinishReason) -> dict[str, Any]:
        """The last chunk with a choice: no text, only why the answer ended."""
        choice: dict[str, Any] = {"text": ""} if self._kind == "text" else {"delta": {}}
        return self._chunk(choice, finish_reason=_OPENAI_FINISH[finish_reason])

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """The extra last chunk of `stream_options.include_usage`: no choices, only usage."""
        return {**self._base, "object": self._chunk_object, "choices": [], "usage": usage.model_dump()}

    def delta_chunks(self, thoughts: str, text: str) -> bytes:
        """A piece of the answer as server-sent events; none if it is empty."""
        found = encode_chunk(self.thought_chunk(thoughts)) if thoughts else b""
        return found + encode_chunk(self.text_chunk(text)) if text else found

    def whole(self, text: str, finish_reason: FinishReason, usage: Usage, thoughts: str = "") -> dict[str, Any]:
        """The answer of a request without `stream`."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": _OPENAI_FINISH[finish_reason]}
        if self._kind == "chat":
            choice["message"] = {"role": "assistant", "content": text}
            if thoughts:
                choice["message"]["reasoning_content"] = thoughts
        else:
            choice["text"] = text
        whole_object = "chat.completion" if self._kind == "chat" else "text_completion"
        return {**self._base, "object": whole_object, "choices": [choice], "usage": usage.model_dump()}

    @property
    def _chunk_object(self) -> str:
        return "chat.completion.chunk" if self._kind == "chat" else "text_completion"

    def _chunk(self, choice: dict[str, Any], *, finish_reason: str | None) -> dict[str, Any]:
        return {
            **self._base,
            "object": self._chunk_object,
            "choices": [{"index": 0, **choice, "logprobs": None, "finish_reason": finish_reason}],
        }
