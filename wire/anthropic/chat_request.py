"""A request to `/v1/messages` as the fields of a chat completion request. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from wire.anthropic.blocks import TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, text_of
from wire.anthropic.requests import CountTokensRequest, MessageParam, MessagesRequest, ThinkingEnabled, Tool, ToolChoice

#: Fields of the chat request whose names in this API differ; errors name these.
NAMES: Mapping[str, str] = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "chat_template_kwargs": "thinking",
    "thinking_budget": "thinking.budget_tokens",
}

_EFFORTS = {"max": "xhigh"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_fields(request: MessagesRequest) -> dict[str, Any]:
    """The fields of the chat completion request that asks for the same answer; absent ones are left out."""
    fields = {
        **prompt_fields(request),
        "max_completion_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stream": request.stream,
    }
    if request.stop_sequences:
        # The answer tells which of them was met, so the engine leaves it in the text (answer.py takes it out).
        fields |= {"stop": list(request.stop_sequences), "include_stop_str_in_output": True}
    if isinstance(request.thinking, ThinkingEnabled):
        fields["thinking_budget"] = request.thinking.budget_tokens
    config = request.output_config
    if config is not None and config.format is not None:
        schema = {"name": "output", "schema": config.format.schema_, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {name: value for name, value in fields.items() if value is not None}


def prompt_fields(request: MessagesRequest | CountTokensRequest) -> dict[str, Any]:
    """Those fields of the chat request that decide its prompt; absent ones are left out."""
    fields: dict[str, Any] = {"model": request.model, "messages": _messages(request)}
    if request.thinking is not None:
        # Templates of models that think at will read one of these names; the others read none.
        thinks = request.thinking.type != "disabled"
        fields["chat_template_kwargs"] = {"enable_thinking": thinks, "thinking": thinks}
    if request.tools:
        fields["tools"] = [_tool(tool) for tool in request.tools]
    if request.tool_choice is not None and (request.tools or request.tool_choice.type in ("any", "tool")):
        fields |= _choice(request.tool_choice)
    config = request.output_config
    if config is not None and config.effort is not None:
        fields["reasoning_effort"] = _EFFORTS.get(config.effort, config.effort)
    last = request.messages[-1]
    if last.role == "assistant" and "tool_calls" not in fields["messages"][-1]:
        # A last message of the assistant is the beginning of the answer.
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return fields


def _messages(request: MessagesRequest | CountTokensRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    system = text_of(request.system or "")
    if system:
        messages.append({"role": "system", "content": system})
    for message in request.messages:
        messages.extend(_assistant(message) if message.role == "assistant" else _user(message))
    return messages


def _user(message: MessageParam) -> list[dict[str, Any]]:
    """A message for each result of a tool, and one for each run of text between them."""
    if isinstance(message.content, str):
        return [{"role": "user", "content": message.content}]
    found: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case ToolResultBlock():
                found.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": text_of(block.content)})
            case TextBlock() if found and found[-1]["role"] == "user":
                found[-1]["content"] += "\n\n" + block.text
            case TextBlock():
                found.append({"role": "user", "content": block.text})
    return found or [{"role": "user", "content": ""}]


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
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    named = {"type": "function", "function": {"name": choice.name}}
    found: dict[str, Any] = {"tool_choice": named if choice.type == "tool" else _CHOICES[choice.type]}
    if choice.disable_parallel_tool_use:
        found["parallel_tool_calls"] = False
    return found
