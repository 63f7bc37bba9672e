"""Tools for models whose chat template knows none: told of in the system message, in the form of calls `hermes`.

Calls of earlier answers become their text, and results messages of the user. docs/tools.md shows the whole form.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.sampling_params import ToolFormat
from engine.text.messages import function_of, joined

PROMPTED_FORMAT: ToolFormat = "hermes"
RESULT_MARKS = ("<tool_response>", "</tool_response>")
_INSTRUCTIONS = """# Tools

You may call functions. These are the functions, one in each line:

{tools}

A call is a JSON object with the name and the arguments of a function, between these tags:
<tool_call>
{{"name": "NAME", "arguments": {{"PARAMETER": VALUE}}}}
</tool_call>

Write a call only where you need a function, and end your answer with it. The next message brings its result between \
<tool_response> and </tool_response>."""


def with_told_tools(messages: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages for a template without tools: the definitions in the system message, calls as text, results as
    messages of the user. Neighbouring results, and what the user says behind them, are one message."""
    told: list[dict[str, Any]] = []
    was_result = False  # the last message begins with a result
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result:
            begin, end = RESULT_MARKS
            message = {"role": "user", "content": joined(joined(begin, message["content"], "\n"), end, "\n")}
        elif message.get("tool_calls"):
            message = _with_written_calls(message)
        if was_result and message["role"] == "user":
            told[-1] = {**told[-1], "content": joined(told[-1]["content"], message["content"], "\n")}
        else:
            told.append(message)
            was_result = is_result
    return [_system(told, tools), *(told[1:] if _begins_with_system(told) else told)] if tools else told


def _begins_with_system(messages: Sequence[Mapping[str, Any]]) -> bool:
    return bool(messages) and messages[0]["role"] == "system"


def _system(messages: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lines = "\n".join(json.dumps(function_of(tool), ensure_ascii=False) for tool in tools)
    told = _INSTRUCTIONS.format(tools=lines)
    if not _begins_with_system(messages):
        return {"role": "system", "content": told}
    given = messages[0]
    return {**given, "content": joined(given["content"], told, "\n\n") if given["content"] else told}


def _with_written_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    functions = (call["function"] for call in message["tool_calls"])
    said = ({"name": function["name"], "arguments": function["arguments"]} for function in functions)
    calls = "\n".join(f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in said)
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": joined(message["content"], calls, "\n") if message["content"] else calls}
