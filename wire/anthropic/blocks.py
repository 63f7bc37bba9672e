"""The content blocks of a request's messages."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from wire.anthropic.fields import BLOCK
from wire.openai.fields import Known
from wire.openai.tolerance import Tolerant
from wire.string_or_list import STRING_OR_LIST


class _Block(Tolerant):
    known: ClassVar[Mapping[str, Known]] = BLOCK


class TextBlock(_Block):
    """Text."""

    type: Literal["text"]
    text: str


TextBlocks = Annotated[tuple[TextBlock, ...], Field(fail_fast=True)]
Texts = Annotated[Annotated[str, Tag("a string")] | Annotated[TextBlocks, Tag("a list")], STRING_OR_LIST]


class ThinkingBlock(_Block):
    """Thoughts of an earlier answer. Only chat templates that read thoughts get them."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(_Block):
    """Thoughts of another service that cannot be read; they are left out."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(_Block):
    """A call of a tool in an earlier answer."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, Any]


class ToolResultBlock(_Block):
    """What the tool of a call gave back."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Texts = ""


_KINDS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


def _kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    # Names with a space: errors leave them out of the path of the field (wire/strict_json.py).
    return f"a {kind}" if kind in _KINDS else None


ContentBlock = Annotated[
    Annotated[TextBlock, Tag("a text")]
    | Annotated[ThinkingBlock, Tag("a thinking")]
    | Annotated[RedactedThinkingBlock, Tag("a redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("a tool_use")]
    | Annotated[ToolResultBlock, Tag("a tool_result")],
    Discriminator(
        _kind,
        custom_error_type="unserved_block",
        custom_error_message="only blocks of type text, thinking, tool_use and tool_result are served",
    ),
]
ContentBlocks = Annotated[tuple[ContentBlock, ...], Field(fail_fast=True)]
Content = Annotated[Annotated[str, Tag("a string")] | Annotated[ContentBlocks, Tag("a list")], STRING_OR_LIST]


def text_of(content: str | tuple[TextBlock, ...]) -> str:
    """The text of a content, its blocks joined by an empty line."""
    return content if isinstance(content, str) else "\n\n".join(block.text for block in content)
