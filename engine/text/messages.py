"""The values that a chat template gets: messages, tools and variables, checked, and with their texts changed."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from engine.errors import InvalidRequest

_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_Change = Callable[[str], str]


class Values(NamedTuple):
    """What one rendering is made from."""

    messages: list[dict[str, Any]]
    kwargs: dict[str, Any]
    tools: list[Mapping[str, Any]]


def checked_messages(
    messages: Sequence[Mapping[str, Any]], call_style: Callable[[], tuple[bool, bool]]
) -> list[dict[str, Any]]:
    """The messages, their tool calls as the template wants them. call_style: whether arguments are texts, and whether
    content beside calls is an empty text, not None (ChatTemplate.call_style). Raises InvalidRequest."""
    if not messages:
        raise InvalidRequest("messages must not be empty", param="messages")
    checked = []
    for place, message in enumerate(messages):
        if not _ROLE.fullmatch(message.get("role", "")):
            raise InvalidRequest(f"not a role: {message.get('role')!r}", param="messages")
        kept = {key: value for key, value in message.items() if value is not None or key == "content"}
        if calls := kept.pop("tool_calls", None):
            as_text, without_none = call_style()
            kept["tool_calls"] = [_call(call, as_text, f"messages.{place}.tool_calls") for call in calls]
            if not kept.get("content"):
                kept["content"] = "" if without_none else None
        elif kept.get("content") is None:
            kept["content"] = ""
        checked.append(kept)
    return checked


def with_read_system(
    messages: Sequence[dict[str, Any]], reads_system: Callable[[], tuple[bool, bool]]
) -> list[dict[str, Any]]:
    """The messages, where each system message that the template would reject or leave out is a paragraph of the message
    before it, if that is the system's or the user's, else of a message of the user, which the next one goes on with.
    So what comes later changes no earlier message. reads_system: ChatTemplate.reads_system."""
    if all(message["role"] != "system" for message in messages):
        return list(messages)
    reads_first, reads_late = reads_system()
    kept: list[dict[str, Any]] = []
    is_only_system = False  # the last message kept has nothing that the user has said
    for place, message in enumerate(messages):
        if message["role"] == "system" and not (reads_late if place else reads_first):
            if kept and kept[-1]["role"] in ("system", "user"):
                kept[-1] = {**kept[-1], "content": joined(kept[-1]["content"], message["content"], "\n\n")}
            else:
                kept.append({"role": "user", "content": message["content"]})
                is_only_system = True
        elif message["role"] == "user" and is_only_system:
            kept[-1] = {**message, "content": joined(kept[-1]["content"], message["content"], "\n\n")}
            is_only_system = False
        else:
            kept.append(message)
            is_only_system = False
    return kept


def with_thoughts(
    messages: Sequence[dict[str, Any]], key: str, template_key: str | None, wants_alone: Callable[[], bool]
) -> list[dict[str, Any]]:
    """The messages with the thoughts, which they have under `key`, where the template reads them; None: nowhere.
    wants_alone: ChatTemplate.wants_thoughts_alone; then what is said beside calls belongs to the thoughts."""
    kept = []
    for message in messages:
        others = {name: value for name, value in message.items() if name != key}
        if (thoughts := message.get(key)) is not None and template_key is not None:
            if thoughts and "tool_calls" in others and others["content"] and wants_alone():
                thoughts, others["content"] = joined(thoughts, others["content"], "\n\n"), ""
            others[template_key] = thoughts
        kept.append(others)
    return kept


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The function of a tool's definition, which may be the definition itself."""
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


def described(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The definition of a function with a description, if only an empty one."""
    function = {"description": "", **function_of(tool)}
    return {**tool, "function": function} if "function" in tool else function


def joined(first: Any, second: Any, between: str) -> Any:
    """Two contents, each a text or a list of parts, as one; texts with this between them."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}"
    parts = ([{"type": "text", "text": each}] if isinstance(each, str) else each for each in (first, second))
    return [part for content in parts for part in content]


def _call(call: Mapping[str, Any], as_text: bool, param: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest("a tool call needs a function with a name", param=param)
    written = function.get("arguments") or {}
    arguments: Any = _arguments(written)
    if as_text:
        said = written if arguments is None else arguments
        arguments = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    elif arguments is None:
        arguments = {"arguments": written}
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments(written: object) -> dict[str, Any] | None:
    """The arguments of a call; None for what is no JSON object, as a cut or careless answer leaves it."""
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except (ValueError, RecursionError):
            return None
    return written if isinstance(written, dict) else None


class Change(NamedTuple):
    """What is done to texts."""

    text: _Change
    key: _Change  #: to keys of objects
    answer: _Change  #: to what earlier answers say


def changed(values: Values, change: Change) -> Values:
    """The values with all texts changed, those in lists and objects included. A role is one of few words and stays."""

    def walk(value: Any, text: _Change) -> Any:
        if isinstance(value, str):
            return text(valid(value))
        if isinstance(value, Mapping):
            return {change.key(valid(key)): walk(part, text) for key, part in value.items()}
        return [walk(part, text) for part in value] if isinstance(value, list | tuple) else value

    def walk_message(message: Mapping[str, Any]) -> dict[str, Any]:
        said = change.answer if message["role"] == "assistant" else change.text
        return {
            key: value if key == "role" else walk(value, said if key == "content" else change.text)
            for key, value in message.items()
        }

    return Values(
        [walk_message(message) for message in values.messages],
        {key: walk(value, change.text) for key, value in values.kwargs.items()},
        [walk(tool, change.text) for tool in values.tools],
    )


def valid(text: str) -> str:
    """The text without lone surrogates, which JSON can carry and on which the tokenizer fails."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
