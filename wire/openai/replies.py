"""The shapes of completions and of their chunks. These models are for the documentation: wire/openai/shaping.py and
wire/openai/whole.py make plain dicts, and tests compare them with these."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.chat import Usage
from wire.tools import ToolCall

OpenAIFinish = Literal["stop", "length", "tool_calls"]

_LAST = "null in all chunks but the last of its choice"
_USAGE = "in one more chunk, with stream_options.include_usage"
_TOKEN_IDS = "with return_token_ids"


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Object(_Shape):
    id: str
    created: int = Field(description="Unix time")
    model: str


class ReplyTopLogprob(_Shape):
    """One of the likeliest tokens at a position."""

    token: str = Field(description="its text, with U+FFFD where it has a part of a character")
    logprob: float = Field(description="natural logarithm, at least -9999")
    bytes: tuple[int, ...] = Field(description="of the token, also where they are a part of a character")


class ReplyLogprob(ReplyTopLogprob):
    """One token of the answer."""

    top_logprobs: tuple[ReplyTopLogprob, ...] = Field(description="the likeliest tokens, as many as asked for")


class ChatLogprobs(_Shape):
    """Log probabilities of a chat's choice, thoughts included."""

    content: tuple[ReplyLogprob, ...]
    refusal: None


class TextLogprobsReply(_Shape):
    """Log probabilities of a completion's choice: lists of equal length. With echo the prompt's tokens come first."""

    tokens: tuple[str, ...] = Field(description=r"a token that has a part of a character is written `bytes:\xf0`")
    token_logprobs: tuple[float | None, ...] = Field(description="null for the first token of a prompt")
    top_logprobs: tuple[dict[str, float] | None, ...] = Field(description="the likeliest tokens and the token itself")
    text_offset: tuple[int, ...] = Field(description="where the token begins in `text`, in characters")


class AssistantMessage(_Shape):
    """The answer of a chat completion."""

    role: Literal["assistant"]
    content: str | None = Field(description="null where the answer only calls tools")
    reasoning_content: str | None = Field(
        default=None, description="what the model thought before it answered; absent if it did not"
    )
    tool_calls: tuple[ToolCall, ...] | None = Field(default=None, description="absent if no tool is called")


class ChatChoice(_Shape):
    """One answer of a chat completion."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: OpenAIFinish
    token_ids: tuple[int, ...] | None = Field(default=None, description=_TOKEN_IDS)


class ChatCompletion(_Object):
    """A whole answer of `POST /v1/chat/completions`."""

    object: Literal["chat.completion"]
    choices: tuple[ChatChoice, ...] = Field(description="n of them")
    usage: Usage = Field(description="over all choices")
    prompt_token_ids: tuple[int, ...] | None = Field(default=None, description=_TOKEN_IDS)


class FunctionDelta(_Shape):
    """What a chunk adds to the function of a call."""

    name: str | None = Field(default=None, description="in the first piece of the call")
    arguments: str = Field(description="all pieces joined are JSON")


class CallDelta(_Shape):
    """What a chunk adds to a tool call."""

    index: int = Field(description="which call of the choice")
    id: str | None = Field(default=None, description="in the first piece of the call")
    type: Literal["function"] | None = Field(default=None, description="in the first piece of the call")
    function: FunctionDelta


class ChatDelta(_Shape):
    """What a chunk adds to the message; empty in the last one. Thoughts come before the content."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = Field(default=None, description="what the model thinks")
    tool_calls: tuple[CallDelta, ...] | None = Field(default=None, description="pieces of calls")


class ChatChunkChoice(_Shape):
    """The part of one choice in a chunk."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: OpenAIFinish | None = Field(description=_LAST)
    token_ids: tuple[int, ...] | None = Field(default=None, description=_TOKEN_IDS)


class ChatCompletionChunk(_Object):
    """One event of a streamed chat completion."""

    object: Literal["chat.completion.chunk"]
    choices: tuple[ChatChunkChoice, ...] = Field(description="one; none in the chunk that has usage")
    usage: Usage | None = Field(default=None, description=_USAGE)
    prompt_token_ids: tuple[int, ...] | None = Field(default=None, description=_TOKEN_IDS)


class TextChoice(_Shape):
    """One choice of a text completion, or its part in a chunk."""

    index: int
    text: str
    logprobs: TextLogprobsReply | None
    finish_reason: OpenAIFinish | None = Field(description=_LAST)
    token_ids: tuple[int, ...] | None = Field(default=None, description=_TOKEN_IDS)
    prompt_token_ids: tuple[int, ...] | None = Field(default=None, description=_TOKEN_IDS)


class TextCompletion(_Object):
    """A whole answer of `POST /v1/completions`."""

    object: Literal["text_completion"]
    choices: tuple[TextChoice, ...] = Field(description="n for each prompt, in the order of the prompts")
    usage: Usage = Field(description="over all choices")


class TextCompletionChunk(_Object):
    """One event of a streamed text completion."""

    object: Literal["text_completion"]
    choices: tuple[TextChoice, ...] = Field(description="one; none in the chunk that has usage")
    usage: Usage | None = Field(default=None, description=_USAGE)
