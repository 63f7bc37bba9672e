"""A request to `/v1/responses` as the fields of a chat completion request. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wire.chat import DrawingFields
from wire.openai.names import Names
from wire.responses.items import FunctionCallItem, FunctionOutputItem, InputItem, MessageItem, ReasoningItem, text_of
from wire.responses.requests import AllowedTools, FunctionChoice, ResponsesRequest, SchemaFormat
from wire.responses.tools import ShownTools, full_name, shown_tools

_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


@dataclass(frozen=True, slots=True)
class Translation:
    """The chat completion request that asks for the same answer, how errors name its fields, and its tools."""

    fields: dict[str, Any]
    names: Names
    tools: ShownTools


def translation(request: ResponsesRequest) -> Translation:
    """The request as a chat completion request; absent fields are left out."""
    tools = shown_tools(request.tools)
    messages, places = _messages(request.input)
    if request.instructions:
        messages.insert(0, {"role": "system", "content": request.instructions})
        places.insert(0, "instructions")
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "response_format": _response_format(request),
        "stream": request.stream,
        "stop": request.stop,
        "cache_salt": request.cache_salt,
        **{name: getattr(request, name) for name in DrawingFields.model_fields},
        **_tools(request, tools),
    }
    if request.wants_logprobs:
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    names = Names(
        {
            **_NAMES,
            **{f"messages.{number}": place for number, place in enumerate(places)},
            **{f"tools.{number}.function": place for number, place in enumerate(tools.places)},
        }
    )
    return Translation({name: value for name, value in fields.items() if value is not None}, names, tools)


def _messages(given: str | Iterable[InputItem]) -> tuple[list[dict[str, Any]], list[str]]:
    """The conversation, and of each message its place in the request. Items of one answer (reasoning, text, calls)
    become one message of the assistant."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}], ["input"]
    messages: list[dict[str, Any]] = []
    places: list[str] = []
    for number, item in enumerate(given):
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
        match item:
            case MessageItem(role="assistant") if last and last["content"] is None and "tool_calls" not in last:
                last["content"] = text_of(item.content)
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
        places += [f"input.{number}"] * (len(messages) - len(places))
    return messages, places


def _call(item: FunctionCallItem) -> dict[str, Any]:
    return {
        "id": item.call_id,
        "type": "function",
        "function": {"name": full_name(item.namespace, item.name), "arguments": item.arguments},
    }


def _tools(request: ResponsesRequest, tools: ShownTools) -> dict[str, Any]:
    choice: Any = request.tool_choice
    match choice:
        case FunctionChoice():
            choice = _named(choice)
        case AllowedTools(mode=mode, tools=allowed):
            among = {"mode": mode, "tools": [_named(one) for one in allowed]}
            choice = {"type": "allowed_tools", "allowed_tools": among}
    if not tools.functions:
        # A choice without tools decides nothing; a named or a required one cannot be served.
        return {"tool_choice": choice if choice not in ("auto", "none") else None}
    return {"tools": tools.functions, "tool_choice": choice, "parallel_tool_calls": request.parallel_tool_calls}


def _named(choice: FunctionChoice) -> dict[str, Any]:
    return {"type": "function", "function": {"name": full_name(choice.namespace, choice.name)}}


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
