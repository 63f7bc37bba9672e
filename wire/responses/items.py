"""The items of a request's `input`: messages, calls of functions, their outputs, reasoning."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from wire.openai.messages import unserved_part
from wire.openai.tolerance import Known, Tolerant, refused
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


def _part_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "a refusal" if kind == "refusal" else "a text"


def _served_part(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    served = ("input_text", "output_text", "text", "reasoning_text", "summary_text", "refusal")
    if isinstance(kind, str) and kind not in served:
        raise refused("type", unserved_part(kind, example="input_text"))
    return value


Part = Annotated[
    Annotated[TextPart, Tag("a text")] | Annotated[RefusalPart, Tag("a refusal")],
    Discriminator(_part_kind),
    BeforeValidator(_served_part),
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
    content: Content = ""


def _text(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


class FunctionCallItem(_Item):
    """A call of a function in an earlier answer."""

    type: Literal["function_call"]
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    namespace: str | None = Field(default=None, description="of the function, where the tools have namespaces")
    arguments: Annotated[str, BeforeValidator(_text)] = Field(
        default="", description="JSON, or what the model wrote in its place"
    )


class FunctionOutputItem(_Item):
    """What the function of a call gave back."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1)
    output: Content = ""


class ReasoningItem(_Item):
    """Thoughts of an earlier answer. Only chat templates that read thoughts get them."""

    type: Literal["reasoning"]
    summary: Parts = ()
    content: Parts = ()


_KINDS = ("message", "function_call", "function_call_output", "reasoning")


def _item_kind(value: Any) -> str:
    kind = value.get("type") or "message" if isinstance(value, dict) else getattr(value, "type", None)
    # Names with a space: errors leave them out of the path of the field (wire/strict_json.py).
    return f"a {kind}" if kind in _KINDS else "a message"


def _served_item(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind and kind not in _KINDS:
        raise refused(
            "type", f"items of type {str(kind)[:60]!r} are not served: only {', '.join(_KINDS)} are. Leave it out."
        )
    return value


InputItem = Annotated[
    Annotated[MessageItem, Tag("a message")]
    | Annotated[FunctionCallItem, Tag("a function_call")]
    | Annotated[FunctionOutputItem, Tag("a function_call_output")]
    | Annotated[ReasoningItem, Tag("a reasoning")],
    Discriminator(_item_kind),
    BeforeValidator(_served_item),
]
