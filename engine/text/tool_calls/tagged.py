"""Calls between tags: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` of Hermes, Qwen and Granite 4, a list
of such objects after Granite 3's tag, and the tags of Qwen3-Coder inside of these:

    <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
"""

import json
import re
from collections.abc import Mapping, Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import guarded, read_calls
from engine.text.tool_calls.json_parts import end_call
from engine.text.tool_calls.reader import Malformed, Parsing, Reader
from engine.text.tool_calls.schemas import property_is_text
from engine.text.tool_calls.writer import Writer

END = "</tool_call>"
FUNCTION = "<function="
PARAMETER = "<parameter="
_VALUE_ENDS = ("\n</parameter>", "</parameter>")
_TAG_RUN = re.compile(r"[^<>\n]+")
_WORDS: Mapping[str, object] = {"True": True, "False": False, "None": None}


def parse_tagged(
    reader: Reader, writer: Writer, functions: Sequence[ToolFunction], marks: Sequence[str]
) -> Parsing[None]:
    """The whole output. marks: the tags that begin a call."""
    while (mark := (yield from reader.until((*marks, FUNCTION), writer.text))) is not None:
        reader.hold(mark)
        block = (
            _read_function(reader, writer, functions) if mark == FUNCTION else _read_block(reader, writer, functions)
        )
        yield from guarded(reader, writer, block, (END,))


def _read_block(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    yield from reader.blanks()
    if (yield from reader.skip(FUNCTION)):
        yield from _read_function(reader, writer, functions)
    else:
        yield from read_calls(reader, writer)
    yield from reader.blanks()
    if not (yield from reader.skip(END)) and (yield from reader.peek()) not in ("", "<"):
        raise Malformed


def _read_function(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """What follows `<function=`."""
    name = (yield from reader.word(_TAG_RUN)).strip()
    yield from reader.expect(">")
    function = next((function for function in functions if function.name == name), None)
    yield from reader.blanks()
    num_parameters = 0
    while (yield from reader.skip(PARAMETER)):
        key = (yield from reader.word(_TAG_RUN)).strip()
        yield from reader.expect(">")
        if not num_parameters:
            writer.begin_call(name)
        writer.arguments(f"{', ' if num_parameters else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        num_parameters += 1
        yield from reader.skip("\n")
        is_text = function is None or property_is_text(function, key)
        yield from read_value(reader, writer, _VALUE_ENDS, is_text=is_text)
        yield from reader.blanks()
    yield from reader.expect("</function>")
    if not num_parameters:
        writer.begin_call(name)
        writer.arguments("{")
    writer.arguments("}")
    end_call(reader, writer)


def read_value(reader: Reader, writer: Writer, ends: Sequence[str], *, is_text: bool) -> Parsing[None]:
    """One value as JSON, up to one of these ends. A text is written while it comes, anything else when it is
    complete."""
    if is_text:
        writer.arguments('"')
        end = yield from reader.until(ends, lambda piece: writer.arguments(json.dumps(piece, ensure_ascii=False)[1:-1]))
        if end is not None:
            writer.arguments('"')
        return
    pieces: list[str] = []
    end = yield from reader.until(ends, pieces.append)
    value = "".join(pieces)
    writer.arguments(_as_json(value.strip()) if end is not None else value)


def _as_json(value: str) -> str:
    """JSON stays as it is, Python's words become JSON's, other texts become strings."""
    if value in _WORDS:
        return json.dumps(_WORDS[value])
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(value, ensure_ascii=False)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)
