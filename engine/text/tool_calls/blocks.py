"""What the parsers share: a block of calls that may turn out to be none."""

import re
from collections.abc import Sequence

from engine.text.tool_calls.json_parts import end_call, pass_value, read_call
from engine.text.tool_calls.reader import Malformed, Parsing, Reader
from engine.text.tool_calls.writer import Writer

#: A function's name where it stands outside of JSON.
NAME_RUN = re.compile(r"[\w.\-]+")


def guarded(reader: Reader, writer: Writer, block: Parsing[None], ends: Sequence[str] = ()) -> Parsing[bool]:
    """Run the parser of a block, which the reader holds; whether it was well-formed.

    Where it was not, broken arguments go on verbatim to the first of `ends`; anything else becomes text.
    """
    try:
        yield from block
    except Malformed:
        if not writer.is_open:
            writer.text(reader.held())
            return False
        reader.let_go()
        yield from reader.until(ends, writer.arguments)
        writer.end_call()
        return False
    reader.let_go()
    return True


def read_calls(reader: Reader, writer: Writer) -> Parsing[None]:
    """One call as a JSON object, several after one another, or a JSON list of them."""
    if (yield from reader.peek()) == "[":
        yield from _read_list(reader, writer)
        return
    while True:
        yield from read_call(reader, writer)
        reader.hold()
        yield from reader.blanks()
        if (yield from reader.peek()) != "{":
            return


def _read_list(reader: Reader, writer: Writer) -> Parsing[None]:
    yield from reader.expect("[")
    while True:
        yield from reader.blanks()
        yield from read_call(reader, writer)
        yield from reader.blanks()
        if (yield from reader.skip("]")):
            reader.hold()
            return
        yield from reader.expect(",")


def read_arguments(reader: Reader, writer: Writer, name: str, call_id: str | None = None) -> Parsing[None]:
    """The JSON object of the arguments of a function whose name is known. call_id: as Writer.begin_call."""
    if (yield from reader.peek()) != "{":
        raise Malformed
    writer.begin_call(name, call_id)
    yield from pass_value(reader, writer.arguments)
    end_call(reader, writer)
