"""The content blocks of a request's messages."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from wire.anthropic.fields import BLOCK
from wire.openai.messages import unserved_part
from wire.openai.tolerance import Known, Tolerant, refused
from wire.string_or_list import STRING_OR_LIST


class _Block(Tolerant):
    known: ClassVar[Mapping[str, Known]] = BLOCK


class TextBlock(_Block):
    """Text."""

    type: Literal["text"]
    text: str


def _as_text(value: Any) -> Any:
    """What a result holds beside text blocks, as text where it is text."""
    match value:
        case {"type": "tool_reference", "tool_name": str(name)}:
            return {"type": "text", "text": name}
        case {"type": "search_result", "source": str(source), "title": str(title), "content": [*parts]}:
            texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
            return {"type": "text", "text": "\n".join([title, source, *texts])}
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return {"type": "text", "text": "\n".join(filter(None, (value.get("title"), text)))}
        case {"type": str(kind)} if kind != "text":
            raise refused("type", unserved_part(kind, example="text"))
    return value


TextBlocks = Annotated[tuple[Annotated[TextBlock, BeforeValidator(_as_text)], ...], Field(fail_fast=True)]
Texts = Annotated[Annotated[str, Tag("a string")] | Annotated[TextBlocks, Tag("a list")], STRING_OR_LIST]


class ThinkingBlock(_Block):
    """Thoughts of an earlier answer. Only chat templates that read thoughts get them."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(_Block):
    """Thoughts of another service that cannot be read; they are left out."""

    type: Literal["redacted_thinking"]
    data: str = ""


class ToolUseBlock(_Block):
    """A call of a tool in an earlier answer."""

    known: ClassVar[Mapping[str, Known]] = BLOCK
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"input"})

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: Any = Field(default=None, description="an object, or the text that the model wrote in its place")


class ToolResultBlock(_Block):
    """What the tool of a call gave back."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Texts = ""


_KINDS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    # Names with a space: errors leave them out of the path of the field (wire/strict_json.py).
    return f"a {kind}" if kind in _KINDS else "a text"


def _served(value: Any) -> Any:
    return value if isinstance(value, dict) and value.get("type") in _KINDS else _as_text(value)


ContentBlock = Annotated[
    Annotated[TextBlock, Tag("a text")]
    | Annotated[ThinkingBlock, Tag("a thinking")]
    | Annotated[RedactedThinkingBlock, Tag("a redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("a tool_use")]
    | Annotated[ToolResultBlock, Tag("a tool_result")],
    Discriminator(_kind),
    BeforeValidator(_served),
]
ContentBlocks = Annotated[tuple[ContentBlock, ...], Field(fail_fast=True)]
Content = Annotated[Annotated[str, Tag("a string")] | Annotated[ContentBlocks, Tag("a list")], STRING_OR_LIST]


def text_of(content: str | tuple[TextBlock, ...]) -> str:
    """The text of a content, its blocks joined by an empty line."""
    return content if isinstance(content, str) else "\n\n".join(block.text for block in content)
