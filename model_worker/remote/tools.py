"""Tools of a model behind another OpenAI server: passed on as they came, and calls read from its stream."""

from typing import Any

from engine.request import ToolCallDelta
from model_worker.engine_protocol import Conversation
from wire.chat import ChatMessage
from wire.errors import ApiError, ErrorCode
from wire.tools import NamedToolChoice


def check_continuation(conversation: Conversation) -> None:
    """Raise UNSUPPORTED_PARAMETER for a conversation that another server may not take as it is meant."""
    if conversation.continue_final_message or not conversation.add_generation_prompt:
        name = "continue_final_message" if conversation.continue_final_message else "add_generation_prompt"
        raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, f"This model does not take {name!r}.", param=name)


def request_messages(messages: tuple[ChatMessage, ...]) -> list[dict[str, Any]]:
    """The messages with calls and results. Some servers refuse the thoughts of earlier answers, and none needs them."""
    listed = []
    for message in messages:
        values = message.model_dump(mode="json", exclude={"reasoning_content"})
        if message.tool_calls and not message.content:
            values["content"] = None
        listed.append(values)
    return listed


def tool_fields(conversation: Conversation) -> dict[str, Any]:
    """The fields of a request that tell of tools; none without tools."""
    if not conversation.tools:
        return {}
    fields: dict[str, Any] = {"tools": [tool.model_dump(mode="json", exclude_none=True) for tool in conversation.tools]}
    choice = conversation.tool_choice
    if choice is not None:
        fields["tool_choice"] = choice.model_dump() if isinstance(choice, NamedToolChoice) else choice
    if not conversation.parallel_tool_calls:
        fields["parallel_tool_calls"] = False
    return fields


def called(delta: Any) -> tuple[ToolCallDelta, ...]:
    """Pieces of calls in a delta of the other server. Raises AttributeError, KeyError, TypeError or ValueError for a
    malformed one."""
    return tuple(_piece(call, call.get("function") or {}) for call in delta.get("tool_calls") or ())


def _piece(call: Any, function: Any) -> ToolCallDelta:
    index, arguments = call.get("index", 0), function.get("arguments") or ""
    texts = (call.get("id") or None, function.get("name") or None)
    if not (isinstance(index, int) and isinstance(arguments, str) and all(isinstance(t, str | None) for t in texts)):
        raise ValueError("a malformed tool call")
    return ToolCallDelta(index, *texts, arguments)
