"""The items of a request's `input`: messages, calls of functions, their outputs, reasoning."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from wire.openai.fields import Known
from wire.openai.tolerance import Tolerant
from wire.responses.fields import ITEM, PART
from wire.string_or_list import STRING_OR_LIST


class TextPart(Tolerant):
    """A part of text, of a request or of an earlier answer."""

    known: ClassVar[Mapping[str, Known]] = PART

    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text"]
    text: str


class RefusalPart(Tolerant):
    """A refusal in an earlier answer of another service; it is taken as text."""

    known: ClassVar[Mapping[str, Known]] = PART

    type: Literal["refusal"]
    refusal: str


def _part_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    match kind:
        case "refusal":
            return "a refusal"
        case "input_text" | "output_text" | "text" | "reasoning_text" | "summary_text":
            return "a text"
    return None


Part = Annotated[
    Annotated[TextPart, Tag("a text")] | Annotated[RefusalPart, Tag("a refusal")],
    Discriminator(
        _part_kind,
        custom_error_type="unserved_part",
        custom_error_message="only parts of type input_text, output_text and refusal are served",
    ),
]
Parts = Annotated[tuple[Part, ...], Field(fail_fast=True)]
Content = Annotated[Annotated[str, Tag("a string")] | Annotated[Parts, Tag("a list")], STRING_OR_LIST]


def text_of(content: str | tuple[TextPart | RefusalPart, ...]) -> str:
    """The text of a content, its parts joined."""
    if isinstance(content, str):
        return content
    return "".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)


class _Item(Tolerant):
    known: ClassVar[Mapping[str, Known]] = ITEM


class MessageItem(_Item):
    """A message of the conversation; an output message of an earlier answer is one, too."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCallItem(_Item):
    """A call of a function in an earlier answer."""

    type: Literal["function_call"]
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    arguments: str = Field(description="JSON")


class FunctionOutputItem(_Item):
    """What the function of a call gave back."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1)
    output: Content


class ReasoningItem(_Item):
    """Thoughts of an earlier answer. Only chat templates that read thoughts get them."""

    type: Literal["reasoning"]
    summary: Parts = ()
    content: Parts = ()


def _item_kind(value: Any) -> str | None:
    kind = value.get("type") or "message" if isinstance(value, dict) else getattr(value, "type", None)
    # Names with a space: errors leave them out of the path of the field (wire/strict_json.py).
    return f"a {kind}" if kind in ("message", "function_call", "function_call_output", "reasoning") else None


InputItem = Annotated[
    Annotated[MessageItem, Tag("a message")]
    | Annotated[FunctionCallItem, Tag("a function_call")]
    | Annotated[FunctionOutputItem, Tag("a function_call_output")]
    | Annotated[ReasoningItem, Tag("a reasoning")],
    Discriminator(
        _item_kind,
        custom_error_type="unserved_item",
        custom_error_message="only items of type message, function_call, function_call_output and reasoning are served",
    ),
]
