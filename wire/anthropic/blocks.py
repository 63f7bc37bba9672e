"""The content blocks of a request's messages."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from wire.lenient import STRING_OR_LIST, LenientFields


class _Block(LenientFields):
    cache_control: Any = Field(default=None, description="accepted and not used: prefixes are cached anyway")


class TextBlock(_Block):
    """Text."""

    type: Literal["text"]
    text: str
    citations: Any = Field(default=None, description="of an earlier answer; not used")


TextBlocks = Annotated[tuple[TextBlock, ...], Field(fail_fast=True)]
Texts = Annotated[Annotated[str, Tag("a string")] | Annotated[TextBlocks, Tag("a list")], STRING_OR_LIST]


class ThinkingBlock(_Block):
    """Thoughts of an earlier answer. Only chat templates that read thoughts get them."""

    type: Literal["thinking"]
    thinking: str
    signature: str = Field(default="", description="not used")


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
    caller: Any = Field(default=None, description="not used")
    toolset_name: Any = Field(default=None, description="not used")


class ToolResultBlock(_Block):
    """What the tool of a call gave back."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Texts = ""
    is_error: bool = Field(default=False, description="not used: the content says what failed")
    toolset_name: Any = Field(default=None, description="not used")


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
