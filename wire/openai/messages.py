"""Messages of a chat request, as OpenAI's clients send them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from wire.chat import ChatMessage, Role
from wire.openai.fields import MESSAGE, PART, Known
from wire.openai.tolerance import Tolerant, invalid, refused, without_unserved
from wire.tools import CallId, ToolCalls

MAX_MESSAGES = 1024

_MEDIA = {
    "image_url": "images",
    "image": "images",
    "input_image": "images",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "videos",
    "file": "files",
    "input_file": "files",
}
_TEXT_TYPES = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}

_CONTENT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                "required": ["type", "text"],
            },
        },
        {"type": "null"},
    ],
    "description": "a string or a list of text parts; null only where an answer calls tools",
}


def _text_of(content: object) -> object:
    """The text of a content: text parts are joined."""
    match content:
        case None | str():
            return content
        case list():
            return "".join(_text_of_part(part, index) for index, part in enumerate(content))
        case _:
            raise invalid("", "must be a string, a list of text parts, or null")


def _text_of_part(part: object, index: int) -> str:
    if not isinstance(part, dict):
        raise invalid(str(index), "a part is an object such as {type: text, text: ...}")
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MEDIA:
        raise refused(f"{index}.type", f"{_MEDIA[kind]} are not served: messages are text.")
    if not isinstance(kind, str) or kind not in _TEXT_TYPES:
        raise refused(f"{index}.type", "parts of this type are not served: messages are text.")
    name = _TEXT_TYPES[kind]
    rest = without_unserved(part, PART, {"type": None, name: None}).keys() - {"type", name}
    if rest:
        field = min(rest)[:100]
        raise refused(f"{index}.{field}", f"The parameter {field!r} is not supported.")
    text = part.get(name)
    if not isinstance(text, str):
        raise invalid(f"{index}.{name}", "must be a string")
    return text


def _role(value: object) -> object:
    return "system" if value == "developer" else value


Content = Annotated[str | None, BeforeValidator(_text_of), WithJsonSchema(_CONTENT_SCHEMA)]


class RequestMessage(Tolerant):
    """One message of a chat request. A reply can be sent back as it came: its other fields are accepted."""

    known: ClassVar[Mapping[str, Known]] = MESSAGE
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"content"})

    role: Annotated[Role, BeforeValidator(_role)] = Field(description="`developer` is taken as system")
    content: Content = None
    reasoning_content: str | None = Field(
        default=None,
        description="thoughts of an earlier answer; only chat templates that read them get them",
    )
    refusal: str | None = Field(default=None, description="of an earlier answer; taken as its content")
    tool_calls: ToolCalls = Field(default=(), description="tools that this answer called")
    tool_call_id: CallId | None = Field(default=None, description="which call this tool message answers")
    name: str | None = Field(default=None, max_length=256, description="name of the tool; else not used")

    @model_validator(mode="before")
    @classmethod
    def _one_name_of_thoughts(cls, value: Any) -> Any:
        if isinstance(value, dict) and "reasoning" in value:
            thoughts = value.get("reasoning_content") or value["reasoning"]
            value = {name: item for name, item in value.items() if name != "reasoning"} | {
                "reasoning_content": thoughts
            }
        return value

    @model_validator(mode="after")
    def _complete(self) -> "RequestMessage":
        if self.content is None and not self.tool_calls and self.refusal is None:
            raise invalid("content", "null is allowed only in an answer that calls tools")
        if self.tool_calls and self.role != "assistant":
            raise invalid("tool_calls", "only answers (role assistant) call tools")
        if self.tool_call_id is not None and self.role != "tool":
            raise invalid("tool_call_id", "only tool messages answer a call")
        if self.role == "tool" and self.tool_call_id is None:
            raise invalid("tool_call_id", "a tool message names the call that it answers")
        return self

    def as_chat_message(self) -> ChatMessage:
        """The message as the engine sees it."""
        return ChatMessage(
            role=self.role,
            content=self.content if self.content is not None else self.refusal or "",
            reasoning_content=self.reasoning_content,
            tool_calls=self.tool_calls,
            tool_call_id=self.tool_call_id,
            name=self.name if self.role == "tool" else None,
        )
