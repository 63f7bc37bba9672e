"""Messages of a chat request, as OpenAI's clients send them. What came from an answer can be sent back as it came, by
whichever name: the history is data, and only what the model cannot read is refused."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from wire.chat import ChatMessage, Role
from wire.openai.fields import MESSAGE, PART
from wire.openai.tolerance import Known, Tolerant, check_refused, invalid, refused
from wire.tools import CallId, ToolCalls

MAX_MESSAGES = 4096

MEDIA = {
    "image_url": "images",
    "image": "images",
    "input_image": "images",
    "input_audio": "audio parts",
    "audio_url": "audio parts",
    "video_url": "videos",
    "file": "files",
    "input_file": "files",
    "document": "documents",
}
_TEXT_TYPES = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_THOUGHT_TYPES = ("thinking", "reasoning")
_ROLES = {"developer": "system", "function": "tool"}
#: Thoughts of an earlier answer, by the names of several servers; the first that is a text is taken.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
_THOUGHT_LISTS = ("thinking_blocks", "reasoning_details")

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
    "description": "a string or a list of text parts; null is an empty one",
}


def unserved_part(kind: object, *, example: str) -> str:
    """Why a part or block of this type is refused. `example`: a type that is served."""
    if isinstance(kind, str) and kind in MEDIA:
        return f"{MEDIA[kind]} are not served: no model here reads them. Send what they say as {example}."
    return f"parts of type {str(kind)[:60]!r} are not served: messages are text. Send a part of type {example}."


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
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise invalid(str(index), "a part is an object such as {type: text, text: ...}")
    kind = part.get("type")
    if kind in _THOUGHT_TYPES:
        return ""  # _thoughts_by_one_name has them
    if not isinstance(kind, str) or kind not in _TEXT_TYPES:
        raise refused(f"{index}.type", unserved_part(kind, example="text"))
    name = _TEXT_TYPES[kind]
    check_refused(part, PART)
    text = part.get(name)
    if not isinstance(text, str):
        raise invalid(f"{index}.{name}", "must be a string")
    return text


def _thoughts_in(value: object) -> str:
    """The text of thoughts in any shape: a text, a list of parts, a part that holds either."""
    match value:
        case str():
            return value
        case list():
            return "".join(map(_thoughts_in, value))
        case dict():
            return next(filter(None, (_thoughts_in(value.get(name)) for name in ("thinking", "text", "summary"))), "")
    return ""


def _role(value: object) -> object:
    return _ROLES.get(value, value) if isinstance(value, str) else value


Content = Annotated[str | None, BeforeValidator(_text_of), WithJsonSchema(_CONTENT_SCHEMA)]


class RequestMessage(Tolerant):
    """One message of a chat request. A reply can be sent back as it came."""

    known: ClassVar[Mapping[str, Known]] = MESSAGE
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"content"})

    role: Annotated[Role, BeforeValidator(_role)] = Field(
        description="`developer` is taken as system, `function` as tool"
    )
    content: Content = None
    reasoning_content: str | None = Field(
        default=None,
        description="thoughts of an earlier answer; only chat templates that read them get them. `reasoning`, "
        "`thinking`, `reasoning_text`, `thinking_blocks` and `reasoning_details` are other names of it",
    )
    refusal: str | None = Field(default=None, description="of an earlier answer; taken as its content")
    tool_calls: ToolCalls = Field(default=(), description="tools that this answer called")
    tool_call_id: CallId | None = Field(default=None, description="which call this tool message answers")
    name: str | None = Field(default=None, max_length=256, description="name of the tool; else not used")

    @model_validator(mode="before")
    @classmethod
    def _thoughts_by_one_name(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        content = value.get("content")
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        found = [
            *(thoughts for name in _THOUGHTS if isinstance(thoughts := value.get(name), str)),
            *(_thoughts_in(value.get(name)) for name in _THOUGHT_LISTS),
            _thoughts_in([part for part in parts if part.get("type") in _THOUGHT_TYPES]),
        ]
        others = {name: item for name, item in value.items() if name not in (*_THOUGHTS, *_THOUGHT_LISTS)}
        return {**others, "reasoning_content": next(filter(None, found), None)}

    @model_validator(mode="after")
    def _complete(self) -> "RequestMessage":
        if self.tool_calls and self.role != "assistant":
            raise invalid("tool_calls", "only answers (role assistant) call tools")
        if self.tool_call_id is not None and self.role != "tool":
            raise invalid("tool_call_id", "only tool messages answer a call")
        return self

    def as_chat_message(self) -> ChatMessage:
        """The message as the engine sees it."""
        return ChatMessage(
            role=self.role,
            content=self.content or self.refusal or "",
            reasoning_content=self.reasoning_content,
            tool_calls=self.tool_calls,
            tool_call_id=self.tool_call_id,
            name=self.name if self.role == "tool" else None,
        )
