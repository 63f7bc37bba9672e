"""Answers of `/v1/messages`, for the documentation: answer.py makes plain dicts, and tests compare them with these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.anthropic.errors import AnthropicErrorBody


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextContent(_Shape):
    """What the model says."""

    type: Literal["text"]
    text: str


class ThinkingContent(_Shape):
    """What the model thought before it answered."""

    type: Literal["thinking"]
    thinking: str
    signature: Literal[""]


class ToolUseContent(_Shape):
    """A call of a tool; the client runs it and sends a `tool_result` with its `id`."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


Content = Annotated[TextContent | ThinkingContent | ToolUseContent, Field(discriminator="type")]
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageUsage(_Shape):
    """Token counts of one answer. In the event `message_start` they are those of the prompt, or 0 where the model's
    server tells them last."""

    input_tokens: int = Field(description="without those read from the prefix cache")
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class AppliedEdit(_Shape):
    """An edit of `context_management` that was carried out."""

    type: Literal["clear_tool_uses_20250919", "clear_thinking_20251015"]
    cleared_tool_uses: int | None = Field(default=None, description="calls whose results were left out")
    cleared_thinking_turns: int | None = Field(default=None, description="answers whose thoughts were left out")
    cleared_input_tokens: int = Field(description="tokens by which the prompt is shorter")


class AppliedEdits(_Shape):
    """What was left out of the conversation."""

    applied_edits: list[AppliedEdit]


class MessageObject(_Shape):
    """A whole answer of `POST /v1/messages`."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Content]
    stop_reason: StopReason | None = Field(description="null only in the event `message_start`")
    stop_sequence: str | None = Field(description="the one of `stop_sequences` that the answer met")
    usage: MessageUsage
    context_management: AppliedEdits | None = Field(default=None, description="absent unless it was asked for")


class OriginalCount(_Shape):
    """The count of the conversation as it was sent."""

    original_input_tokens: int


class TokenCount(_Shape):
    """Answer of `POST /v1/messages/count_tokens`."""

    input_tokens: int
    context_management: OriginalCount | None = Field(default=None, description="absent unless it was asked for")


class MessageStart(_Shape):
    """The first event: a message without content."""

    type: Literal["message_start"]
    message: MessageObject


class ContentBlockStart(_Shape):
    """A block of the content begins, empty."""

    type: Literal["content_block_start"]
    index: int
    content_block: Content


class Piece(_Shape):
    """More of a block; the field is named by the type."""

    type: Literal["text_delta", "thinking_delta", "input_json_delta"]
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None


class ContentBlockDelta(_Shape):
    """More of the block that began last."""

    type: Literal["content_block_delta"]
    index: int
    delta: Piece


class ContentBlockStop(_Shape):
    """The block is complete."""

    type: Literal["content_block_stop"]
    index: int


class Ending(_Shape):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(_Shape):
    """The last event but one: the end of the answer and its token counts."""

    type: Literal["message_delta"]
    delta: Ending
    usage: MessageUsage
    context_management: AppliedEdits | None = Field(default=None, description="absent unless it was asked for")


class MessageStop(_Shape):
    """The last event."""

    type: Literal["message_stop"]


EVENTS: dict[str, type[BaseModel]] = {
    "message_start": MessageStart,
    "content_block_start": ContentBlockStart,
    "content_block_delta": ContentBlockDelta,
    "content_block_stop": ContentBlockStop,
    "message_delta": MessageDelta,
    "message_stop": MessageStop,
    "error": AnthropicErrorBody,
}
