"""A request to `/v1/responses` as the fields of a chat completion request. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from wire.errors import ApiError, ErrorCode
from wire.responses.items import FunctionCallItem, FunctionOutputItem, InputItem, MessageItem, ReasoningItem, text_of
from wire.responses.requests import AllowedTools, FunctionChoice, FunctionTool, ResponsesRequest, SchemaFormat

#: Fields of the chat request whose names in this API differ; errors name these.
NAMES: Mapping[str, str] = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


def chat_fields(request: ResponsesRequest) -> dict[str, Any]:
    """The fields of the chat completion request that asks for the same answer; absent ones are left out. Raises
    ApiError INVALID_REQUEST where the choice of a tool names none of the tools."""
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": [*_instructions(request), *_messages(request.input)],
        "max_completion_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "response_format": _response_format(request),
        "stream": request.stream,
        **_tools(request),
    }
    if request.wants_logprobs:
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    return {name: value for name, value in fields.items() if value is not None}


def _instructions(request: ResponsesRequest) -> list[dict[str, Any]]:
    return [{"role": "system", "content": request.instructions}] if request.instructions else []


def _messages(given: str | Iterable[InputItem]) -> list[dict[str, Any]]:
    """The conversation. Items of one answer (reasoning, text, calls) become one message of the assistant."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[dict[str, Any]] = []
    for item in given:
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
        match item:
            case MessageItem(role="assistant"):
                if last is not None and last["content"] is None and "tool_calls" not in last:
                    last["content"] = text_of(item.content)
                else:
                    messages.append({"role": "assistant", "content": text_of(item.content)})
            case MessageItem():
                messages.append({"role": item.role, "content": text_of(item.content)})
            case ReasoningItem():
                thoughts = text_of(item.content) or text_of(item.summary)
                if thoughts:
                    messages.append({"role": "assistant", "content": None, "reasoning_content": thoughts})
            case FunctionCallItem():
                if last is None:
                    last = {"role": "assistant", "content": None}
                    messages.append(last)
                last.setdefault("tool_calls", []).append(_call(item))
            case FunctionOutputItem():
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)})
    for message in messages:
        if message["content"] is None and "tool_calls" not in message:
            message["content"] = ""
    return messages


def _call(item: FunctionCallItem) -> dict[str, Any]:
    return {
        "id": item.call_id,
        "type": "function",
        "function": {"name": item.name, "arguments": item.arguments},
    }


def _tools(request: ResponsesRequest) -> dict[str, Any]:
    """Tools and the choice among them. A choice of allowed tools leaves the other tools out."""
    tools: Iterable[FunctionTool] = request.tools
    choice: Any = request.tool_choice
    match request.tool_choice:
        case FunctionChoice(name=name):
            choice = {"type": "function", "function": {"name": name}}
        case AllowedTools(mode=mode, tools=allowed):
            names = {tool.name for tool in allowed}
            missing = names - {tool.name for tool in tools}
            if missing:
                text = f"tool_choice: {min(missing)!r} is none of the tools"
                raise ApiError(ErrorCode.INVALID_REQUEST, text, param="tool_choice")
            tools, choice = [tool for tool in tools if tool.name in names], mode
    if not request.tools:
        # A choice without tools decides nothing; a named or a required one cannot be served.
        return {"tool_choice": choice if choice not in ("auto", "none") else None}
    return {
        "tools": [_tool(tool) for tool in tools],
        "tool_choice": choice,
        "parallel_tool_calls": request.parallel_tool_calls,
    }


def _tool(tool: FunctionTool) -> dict[str, Any]:
    given = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": {name: value for name, value in given.items() if value is not None}}


def _response_format(request: ResponsesRequest) -> dict[str, Any] | None:
    match request.output_format:
        case SchemaFormat() as given:
            schema: dict[str, Any] = {"name": given.name, "schema": given.schema_}
            if given.description is not None:
                schema["description"] = given.description
            if given.strict is not None:
                schema["strict"] = given.strict
            return {"type": "json_schema", "json_schema": schema}
        case given if given.type == "json_object":
            return {"type": "json_object"}
    return None
