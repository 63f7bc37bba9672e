"""The shapes of completions and of their chunks. These models are for the documentation: wire/openai/shaping.py makes
plain dicts, and tests compare them with these."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.chat import Usage

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
