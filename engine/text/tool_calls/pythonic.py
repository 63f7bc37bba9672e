"""Calls as a Python list, as Llama 3.2 and 4 write them: `[f(a=1, b="x"), g()]`, in front of any text or between
`<|python_start|>` and `<|python_end|>`. Values are Python's literals or JSON; they become JSON while they come.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import NAME_RUN, guarded
from engine.text.tool_calls.json_parts import end_call
from engine.text.tool_calls.reader import Malformed, Parsing, Reader, Sink
from engine.text.tool_calls.writer import Writer

START, END = "<|python_start|>", "<|python_end|>"
_MAX_DEPTH = 32
_IDENTIFIER_RUN = re.compile(r"\w+")
_NUMBER_RUN = re.compile(r"[-+.\w]+")
_PLAIN_RUN = re.compile(r"[^\"'\\\x00-\x1f]+")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_HEX = frozenset("0123456789abcdefABCDEF")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
#: Escapes of one character in both languages' strings, and what they become inside a JSON string.
_ESCAPES: Mapping[str, str] = {
    **{letter: "\\" + letter for letter in 'bfnrt"\\'},
    "'": "'",
    "/": "/",
    "a": "\\u0007",
    "v": "\\u000b",
    "\n": "",
}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}


def parse_pythonic(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output. Only a list of calls of these functions is one: an answer may begin with a bracket, too."""
    names = frozenset(function.name for function in functions)
    reader.hold()
    yield from reader.blanks()
    if (yield from reader.peek()) == "[":
        yield from guarded(reader, writer, _read_list(reader, writer, names), (END,))
    else:
        writer.text(reader.held())
    while (mark := (yield from reader.until((START, END), writer.text))) is not None:
        reader.hold(mark)
        if mark == START:
            yield from reader.blanks()
            yield from guarded(reader, writer, _read_list(reader, writer, names), (END,))


def _read_list(reader: Reader, writer: Writer, names: frozenset[str]) -> Parsing[None]:
    yield from reader.expect("[")
    while True:
        yield from reader.blanks()
        name = yield from reader.word(NAME_RUN)
        yield from reader.blanks()
        yield from reader.expect("(")
        if names and name not in names:
            raise Malformed
        yield from _read_arguments(reader, writer, name)
        yield from reader.blanks()
        if (yield from reader.skip("]")):
            return
        yield from reader.expect(",")


def _read_arguments(reader: Reader, writer: Writer, name: str) -> Parsing[None]:
    """What follows the opening parenthesis."""
    num_arguments = 0
    yield from reader.blanks()
    while not (yield from reader.skip(")")):
        key = yield from reader.word(_IDENTIFIER_RUN)
        yield from reader.blanks()
        yield from reader.expect("=")
        yield from reader.blanks()
        if not num_arguments:
            writer.begin_call(name)
        writer.arguments(f"{', ' if num_arguments else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        num_arguments += 1
        yield from _pass_value(reader, writer.arguments)
        yield from reader.blanks()
        if not (yield from reader.skip(",")) and not (yield from reader.has(")")):
            raise Malformed
        yield from reader.blanks()
    if not num_arguments:
        writer.begin_call(name)
        writer.arguments("{")
    writer.arguments("}")
    end_call(reader, writer)


def _pass_value(reader: Reader, sink: Sink, depth: int = 0) -> Parsing[None]:
    """A literal, as JSON. What cannot be one is given to the sink as it is before Malformed is raised."""
    if depth > _MAX_DEPTH:
        raise Malformed
    match (yield from reader.peek()):
        case "'" | '"' as quote:
            yield from _pass_string(reader, sink, quote)
        case "[":
            yield from _pass_items(reader, sink, "]", depth)
        case "(":
            yield from _pass_items(reader, sink, ")", depth)
        case "{":
            yield from _pass_items(reader, sink, "}", depth)
        case _:
            yield from _pass_word(reader, sink)


def _pass_items(reader: Reader, sink: Sink, end: str, depth: int) -> Parsing[None]:
    """A list, a tuple or a dictionary."""
    yield from reader.take()
    sink("{" if end == "}" else "[")
    is_first = True
    yield from reader.blanks()
    while not (yield from reader.skip(end)):
        if not is_first:
            sink(", ")
        is_first = False
        if end == "}":
            quote = yield from reader.peek()
            if quote not in ("'", '"'):
                raise Malformed
            yield from _pass_string(reader, sink, quote)
            yield from reader.blanks()
            yield from reader.expect(":")
            sink(": ")
            yield from reader.blanks()
        yield from _pass_value(reader, sink, depth + 1)
        yield from reader.blanks()
        if not (yield from reader.skip(",")) and not (yield from reader.has(end)):
            raise Malformed
        yield from reader.blanks()
    sink("}" if end == "}" else "]")


def _pass_word(reader: Reader, sink: Sink) -> Parsing[None]:
    """A number, or one of the words of both languages."""
    word = ""
    while (yield from reader.peek()) and (piece := reader.run(_NUMBER_RUN)):
        word += piece
    if _JSON_NUMBER.fullmatch(word):
        sink(word)
    elif word in _WORDS:
        sink(_WORDS[word])
    else:
        try:
            value = ast.literal_eval(word)
            sink(json.dumps(value, allow_nan=False))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            sink(word)
            raise Malformed from None


def _pass_string(reader: Reader, sink: Sink, quote: str) -> Parsing[None]:
    yield from reader.take()
    sink('"')
    while True:
        character = yield from reader.peek()
        if piece := reader.run(_PLAIN_RUN):
            sink(piece)
            continue
        yield from reader.take()
        if character == quote:
            sink('"')
            return
        if character == "\\":
            yield from _pass_escape(reader, sink)
        elif character:
            sink(json.dumps(character)[1:-1])
        else:
            raise Malformed


def _pass_escape(reader: Reader, sink: Sink) -> Parsing[None]:
    """What follows a backslash. One that begins no escape is a backslash, as in Python."""
    letter = yield from reader.peek()
    if letter in _ESCAPES:
        yield from reader.take()
        sink(_ESCAPES[letter])
    elif letter not in _HEX_ESCAPES:
        sink("\\\\")
    else:
        yield from reader.take()
        digits = ""
        while len(digits) < _HEX_ESCAPES[letter] and (yield from reader.peek()) in _HEX:
            digits += yield from reader.take()
        number = int(digits or "0", 16)
        if len(digits) < _HEX_ESCAPES[letter] or number > 0x10FFFF:
            sink(f"\\\\{letter}{digits}")
        else:
            sink(f"\\u{digits}" if letter == "u" else json.dumps(chr(number))[1:-1])
