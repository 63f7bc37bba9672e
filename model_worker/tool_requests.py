"""Conversations with tools: from wire types to what the engine's tokenizer and parser take. Imports no torch."""

from typing import Any

from engine.request import ToolCallDelta as EngineToolCallDelta
from engine.text.tool_calls.calling import ToolRequest
from model_worker.engine_protocol import Conversation
from wire.answers import ToolCallDelta
from wire.chat import ChatMessage
from wire.tools import NamedToolChoice


def tool_request(conversation: Conversation) -> ToolRequest:
    """What the conversation says of tools. Raises InvalidRequest."""
    choice = conversation.tool_choice
    return ToolRequest(
        tools=[tool.model_dump(exclude_none=True) for tool in conversation.tools],
        choice=None if isinstance(choice, NamedToolChoice) else choice,
        named=choice.function.name if isinstance(choice, NamedToolChoice) else None,
        is_parallel=conversation.parallel_tool_calls,
    )


def template_messages(messages: tuple[ChatMessage, ...]) -> list[dict[str, Any]]:
    """The messages as chat templates read them. A tool's result has the name of the function that was called: some
    templates ask for it, and clients leave it out."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls}
    listed = []
    for message in messages:
        values = message.model_dump()
        if message.role == "tool" and message.name is None and message.tool_call_id in names:
            values["name"] = names[message.tool_call_id]
        listed.append(values)
    return listed


def wire_calls(deltas: tuple[EngineToolCallDelta, ...]) -> tuple[ToolCallDelta, ...]:
    """Pieces of tool calls in wire types."""
    return tuple(ToolCallDelta(delta.index, delta.id, delta.name, delta.arguments) for delta in deltas)
