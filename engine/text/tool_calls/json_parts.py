"""JSON inside tool calls: values that pass through character for character, and the object that is a whole call.

What a function here takes from the reader it gives to its sink before it raises Malformed.
"""

import json
import re
from collections.abc import Container
from typing import Literal

from engine.text.tool_calls.reader import BLANKS, Malformed, Parsing, Reader, Sink
from engine.text.tool_calls.writer import Writer

_MAX_DEPTH = 128
_BLANK_RUN = re.compile(f"[{BLANKS}]+")
_PLAIN_RUN = re.compile(r'[^"\\\x00-\x1f]+')
_SCALAR_RUN = re.compile(r"[-+.\w]+")
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_HEX = frozenset("0123456789abcdefABCDEF")
_NAME_KEYS = ("name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters")
#: Keys that some models add; the call does not need their values.
_OTHER_KEYS = ("id", "type", "index")

_Expected = Literal["value", "value or end", "key", "key or end", "comma or end"]


def pass_value(reader: Reader, sink: Sink) -> Parsing[None]:
    """One JSON value, as it is written. Control characters in strings, which JSON does not allow, are escaped."""
    ends: list[str] = []
    expected: _Expected = "value"
    while True:
        while (yield from reader.peek()) and (blanks := reader.run(_BLANK_RUN)):
            sink(blanks)
        character = yield from reader.peek()
        if expected == "comma or end" and character == ",":
            yield from _pass_next(reader, sink)
            expected = "key" if ends[-1] == "}" else "value"
            continue
        if ends and character == ends[-1] and expected not in ("value", "key"):
            yield from _pass_next(reader, sink)
            ends.pop()
        elif expected in ("key", "key or end"):
            yield from _pass_string(reader, sink)
            while (yield from reader.peek()) and (blanks := reader.run(_BLANK_RUN)):
                sink(blanks)
            if (yield from reader.peek()) != ":":
                raise Malformed
            yield from _pass_next(reader, sink)
            expected = "value"
            continue
        elif expected == "comma or end":
            raise Malformed
        elif character in ("{", "["):
            if len(ends) == _MAX_DEPTH:
                raise Malformed
            yield from _pass_next(reader, sink)
            ends.append("}" if character == "{" else "]")
            expected = "key or end" if character == "{" else "value or end"
            continue
        elif character == '"':
            yield from _pass_string(reader, sink)
        else:
            yield from _pass_scalar(reader, sink)
        if not ends:
            return
        expected = "comma or end"


def _pass_next(reader: Reader, sink: Sink) -> Parsing[str]:
    character = yield from reader.take()
    if character:
        sink(character)
    return character


def _pass_string(reader: Reader, sink: Sink) -> Parsing[None]:
    if (yield from reader.peek()) != '"':
        raise Malformed
    yield from _pass_next(reader, sink)
    while True:
        character = yield from reader.peek()
        if piece := reader.run(_PLAIN_RUN):
            sink(piece)
        elif character == '"':
            yield from _pass_next(reader, sink)
            return
        elif character == "\\":
            yield from _pass_escape(reader, sink)
        elif character:
            yield from reader.take()
            sink(json.dumps(character)[1:-1])
        else:
            raise Malformed


def _pass_escape(reader: Reader, sink: Sink) -> Parsing[None]:
    yield from _pass_next(reader, sink)
    character = yield from reader.peek()
    if not character or character not in '"\\/bfnrtu':
        raise Malformed
    yield from _pass_next(reader, sink)
    for _ in range(4 if character == "u" else 0):
        if (yield from reader.peek()) not in _HEX:
            raise Malformed
        yield from _pass_next(reader, sink)


def _pass_scalar(reader: Reader, sink: Sink) -> Parsing[None]:
    """A number, true, false or null."""
    found = ""
    while (yield from reader.peek()) and (piece := reader.run(_SCALAR_RUN)):
        sink(piece)
        found += piece
    if not _SCALAR.fullmatch(found):
        raise Malformed


def read_string(reader: Reader) -> Parsing[str]:
    """The text that a JSON string stands for."""
    pieces: list[str] = []
    yield from _pass_string(reader, pieces.append)
    text: str = json.loads("".join(pieces))
    return text


def read_call(
    reader: Reader, writer: Writer, *, names: Container[str] | None = None, needs_arguments: bool = False
) -> Parsing[None]:
    """One JSON object with a function's name and its arguments. The call is written as soon as both are known to come.

    names: those that make the object a call; None: any. Raises Malformed; then `writer.is_open` says whether the
    arguments are broken. Otherwise all that the reader holds is no part of a call.
    """
    name: str | None = None
    early: list[str] = []  # arguments that stand before the name
    is_written = False
    yield from reader.expect("{")
    while True:
        yield from reader.blanks()
        key = yield from read_string(reader)
        yield from reader.blanks()
        yield from reader.expect(":")
        yield from reader.blanks()
        if key in _NAME_KEYS and name is None:
            name = yield from read_string(reader)
            if not name or (names is not None and name not in names):
                raise Malformed
        elif key in _ARGUMENT_KEYS and not early and not is_written:
            if name is None:
                yield from _read_arguments(reader, early)
            else:
                yield from _pass_arguments(reader, writer, name)
                is_written = True
        elif key in _OTHER_KEYS:
            yield from pass_value(reader, _ignore)
        else:
            raise Malformed
        yield from reader.blanks()
        if (yield from reader.skip("}")):
            break
        yield from reader.expect(",")
    if is_written:
        return
    if name is None or (needs_arguments and not early):
        raise Malformed
    writer.begin_call(name)
    writer.arguments("".join(early) or "{}")
    end_call(reader, writer)


def end_call(reader: Reader, writer: Writer) -> None:
    """The arguments of a call are complete; what the reader holds from now on belongs to none."""
    writer.end_call()
    reader.hold()


def _pass_arguments(reader: Reader, writer: Writer, name: str) -> Parsing[None]:
    if (yield from reader.peek()) == "{":
        writer.begin_call(name)
        yield from pass_value(reader, writer.arguments)
    else:
        read: list[str] = []
        yield from _read_arguments(reader, read)
        writer.begin_call(name)
        writer.arguments("".join(read))
    end_call(reader, writer)


def _read_arguments(reader: Reader, pieces: list[str]) -> Parsing[None]:
    """An object, null, or an object inside a string."""
    match (yield from reader.peek()):
        case "{":
            yield from pass_value(reader, pieces.append)
        case "n":
            yield from reader.expect("null")
            pieces.append("{}")
        case _:
            text = yield from read_string(reader)
            try:
                is_object = isinstance(json.loads(text), dict)
            except ValueError:
                is_object = False
            if not is_object:
                raise Malformed
            pieces.append(text)


def _ignore(piece: str) -> None:
    """Drop a value that a call does not need."""
