"""Mistral's calls: `[TOOL_CALLS]` before a JSON list of calls, or before each `NAME[ARGS]{...}`."""

import re
from collections.abc import Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import NAME_RUN, guarded, read_arguments, read_calls
from engine.text.tool_calls.reader import Parsing, Reader
from engine.text.tool_calls.writer import Writer

CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_ID_RUN = re.compile(r"[A-Za-z0-9]+")


def parse_mistral(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output, in both forms."""
    while (mark := (yield from reader.until((CALLS,), writer.text))) is not None:
        reader.hold(mark)
        yield from guarded(reader, writer, _read_block(reader, writer), (CALLS,))


def _read_block(reader: Reader, writer: Writer) -> Parsing[None]:
    yield from reader.blanks()
    if (yield from reader.peek()) in ("[", "{"):
        yield from read_calls(reader, writer)
        return
    name = yield from reader.word(NAME_RUN)
    yield from reader.blanks()
    if (yield from reader.skip(CALL_ID)):
        yield from reader.word(_ID_RUN)
    yield from reader.skip(ARGS)
    yield from reader.blanks()
    yield from read_arguments(reader, writer, name)
