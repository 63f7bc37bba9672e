"""A request to `/v1/messages` as the fields of a chat completion request. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from wire.anthropic.blocks import TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, text_of
from wire.anthropic.client_tools import CLIENT_TOOLS
from wire.anthropic.requests import (
    ClientTool,
    CountTokensRequest,
    MessageParam,
    MessagesRequest,
    ThinkingEnabled,
    Tool,
    ToolChoice,
)
from wire.chat import DrawingFields
from wire.openai.names import Names

#: Fields of the chat request whose names in this API differ; errors name these.
_NAMES: Mapping[str, str] = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "chat_template_kwargs": "thinking",
    "thinking_budget": "thinking.budget_tokens",
}

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def translation(request: MessagesRequest) -> tuple[dict[str, Any], Names]:
    """The fields of the chat completion request that asks for the same answer, absent ones left out, and how errors
    name them."""
    fields, names = prompt_translation(request)
    fields |= {
        "max_completion_tokens": request.max_tokens,
        "stream": request.stream,
        **{name: getattr(request, name) for name in DrawingFields.model_fields},
    }
    if request.stop_sequences:
        # The answer tells which of them was met, so the engine leaves it in the text (answer.py takes it out).
        fields |= {"stop": list(request.stop_sequences), "include_stop_str_in_output": True}
    if isinstance(request.thinking, ThinkingEnabled):
        fields["thinking_budget"] = request.thinking.budget_tokens
    config = request.output_config
    form = request.output_format if config is None or config.format is None else config.format
    if form is not None and not _is_call(fields):  # a call has no text that could have a format
        schema = {"name": "output", "schema": form.schema_, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {name: value for name, value in fields.items() if value is not None}, names


def prompt_translation(request: MessagesRequest | CountTokensRequest) -> tuple[dict[str, Any], Names]:
    """Those fields of the chat request that decide its prompt, absent ones left out, and how errors name them."""
    messages, places = _messages(request)
    fields: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.thinking is not None:
        # Templates of models that think at will read one of these names; the others read none.
        thinks = request.thinking.type != "disabled"
        fields["chat_template_kwargs"] = {"enable_thinking": thinks, "thinking": thinks}
    if request.chat_template_kwargs:
        fields["chat_template_kwargs"] = {**fields.get("chat_template_kwargs", {}), **request.chat_template_kwargs}
    if request.tools:
        fields["tools"] = [_tool(tool) for tool in request.tools]
    if request.tool_choice is not None and (request.tools or request.tool_choice.type in ("any", "tool")):
        fields |= _choice(request.tool_choice)
    configs = [request.output_config, *(message.output_config for message in request.messages)]
    efforts = [config.effort for config in configs if config is not None and config.effort is not None]
    if efforts:
        fields["reasoning_effort"] = efforts[-1]
    if request.messages[-1].role == "assistant" and "tool_calls" not in messages[-1] and not _is_call(fields):
        # A last message of the assistant is the beginning of the answer, unless that must be a call.
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    of_messages = {f"messages.{number}": place for number, place in enumerate(places)}
    of_tools = {f"tools.{number}.function": f"tools.{number}" for number in range(len(request.tools))}
    return fields, Names({**_NAMES, **of_messages, **of_tools})


def _messages(request: MessagesRequest | CountTokensRequest) -> tuple[list[dict[str, Any]], list[str]]:
    """The messages, and of each its place in the request."""
    messages: list[dict[str, Any]] = []
    system = text_of(request.system or "")
    if system:
        messages.append({"role": "system", "content": system})
    places = ["system"] * len(messages)
    users = [number for number, message in enumerate(request.messages) if message.role == "user"]
    for number, message in enumerate(request.messages):
        is_cleared = message.clear_at == "next_user_message" and users and users[-1] > number
        if message.role == "system" and (is_cleared or not message.content):
            continue
        messages.extend(_assistant(message) if message.role == "assistant" else _others(message))
        places += [f"messages.{number}"] * (len(messages) - len(places))
    return messages, places


def _others(message: MessageParam) -> list[dict[str, Any]]:
    """A message for each result of a tool, and one for each run of text between them."""
    role = message.role
    if isinstance(message.content, str):
        return [{"role": role, "content": message.content}]
    found: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case ToolResultBlock():
                found.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": text_of(block.content)})
            case TextBlock() if found and found[-1]["role"] == role:
                found[-1]["content"] += "\n\n" + block.text
            case TextBlock():
                found.append({"role": role, "content": block.text})
    return found or [{"role": role, "content": ""}]


def _assistant(message: MessageParam) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"role": "assistant", "content": message.content}]
    text = text_of(tuple(block for block in message.content if isinstance(block, TextBlock)))
    thoughts = "".join(block.thinking for block in message.content if isinstance(block, ThinkingBlock))
    calls = [_call(block) for block in message.content if isinstance(block, ToolUseBlock)]
    found: dict[str, Any] = {"role": "assistant", "content": text}
    if thoughts:
        found["reasoning_content"] = thoughts
    if calls:
        found |= {"content": text or None, "tool_calls": calls}
    return [found]


def _call(block: ToolUseBlock) -> dict[str, Any]:
    given = {} if block.input is None else block.input
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _tool(tool: Tool | ClientTool) -> dict[str, Any]:
    if isinstance(tool, ClientTool):
        name, description, schema = CLIENT_TOOLS[tool.type]
        given = {"name": tool.name or name, "description": description, "parameters": schema, "strict": tool.strict}
    else:
        given = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
            "strict": tool.strict,
        }
    return {"type": "function", "function": {name: value for name, value in given.items() if value is not None}}


def _is_call(fields: Mapping[str, Any]) -> bool:
    """Whether the answer must be a call."""
    return fields.get("tool_choice") not in (None, "auto", "none")


def _choice(choice: ToolChoice) -> dict[str, Any]:
    named = {"type": "function", "function": {"name": choice.name}}
    found: dict[str, Any] = {"tool_choice": named if choice.type == "tool" else _CHOICES[choice.type]}
    if choice.disable_parallel_tool_use:
        found["parallel_tool_calls"] = False
    return found
