"""Gemma's calls: objects whose keys have no quotes, and whose texts stand between marks. Gemma 4 and FunctionGemma:

<|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:2}<tool_call|>
<start_function_call>call:NAME{KEY:<escape>TEXT<escape>,KEY:2}<end_function_call>
"""

import json
import re
from collections.abc import Mapping, Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import NAME_RUN, guarded
from engine.text.tool_calls.json_parts import end_call, pass_value
from engine.text.tool_calls.reader import Malformed, Parsing, Reader
from engine.text.tool_calls.writer import Writer

BEGIN, END, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
FUNCTION_BEGIN, FUNCTION_END, FUNCTION_QUOTE = "<start_function_call>", "<end_function_call>", "<escape>"
_ENDS: Mapping[str, str] = {BEGIN: END, FUNCTION_BEGIN: FUNCTION_END}
_QUOTES = (QUOTE, FUNCTION_QUOTE)
_WORD_RUN = re.compile(r"[^\s:,{}\[\]<>\"]+")
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_MAX_DEPTH = 64


def parse_gemma(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output, in both forms."""
    while (mark := (yield from reader.until((BEGIN, FUNCTION_BEGIN), writer.text))) is not None:
        reader.hold(mark)
        yield from guarded(reader, writer, _read_block(reader, writer, _ENDS[mark]), (_ENDS[mark],))


def _read_block(reader: Reader, writer: Writer, end: str) -> Parsing[None]:
    yield from reader.blanks()
    yield from reader.expect("call:")
    name = yield from reader.word(NAME_RUN)
    yield from reader.blanks()
    if (yield from reader.peek()) != "{":
        raise Malformed
    writer.begin_call(name)
    yield from _pass_value(reader, writer, _MAX_DEPTH)
    end_call(reader, writer)
    yield from reader.blanks()
    if not (yield from reader.skip(end)) and (yield from reader.peek()) not in ("", "<"):
        raise Malformed


def _pass_value(reader: Reader, writer: Writer, depth: int) -> Parsing[None]:
    """One value, as JSON. What is read is written before Malformed is raised."""
    if not depth:
        raise Malformed
    character = yield from reader.peek()
    if character == "{":
        yield from _pass_list(reader, writer, "{", "}", depth)
    elif character == "[":
        yield from _pass_list(reader, writer, "[", "]", depth)
    elif character == '"':
        yield from pass_value(reader, writer.arguments)
    elif not (yield from _pass_quoted(reader, writer)):
        word = yield from reader.word(_WORD_RUN)
        writer.arguments(word if _SCALAR.fullmatch(word) else json.dumps(word, ensure_ascii=False))


def _pass_list(reader: Reader, writer: Writer, opening: str, closing: str, depth: int) -> Parsing[None]:
    """An object or an array."""
    yield from reader.expect(opening)
    writer.arguments(opening)
    yield from reader.blanks()
    is_first = True
    while not (yield from reader.skip(closing)):
        if not is_first:
            yield from reader.expect(",")
            writer.arguments(", ")
            yield from reader.blanks()
        is_first = False
        if opening == "{":
            if not (yield from _pass_quoted(reader, writer)):
                if (yield from reader.peek()) == '"':
                    yield from pass_value(reader, writer.arguments)
                else:
                    writer.arguments(json.dumps((yield from reader.word(_WORD_RUN)), ensure_ascii=False))
            yield from reader.blanks()
            yield from reader.expect(":")
            writer.arguments(": ")
            yield from reader.blanks()
        yield from _pass_value(reader, writer, depth - 1)
        yield from reader.blanks()
    writer.arguments(closing)


def _pass_quoted(reader: Reader, writer: Writer) -> Parsing[bool]:
    """A text between marks, if one comes next; whether it did."""
    for quote in _QUOTES:
        if (yield from reader.skip(quote)):
            writer.arguments('"')
            end = yield from reader.until(
                (quote,), lambda piece: writer.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
            )
            if end is not None:
                writer.arguments('"')
            return True
    return False
