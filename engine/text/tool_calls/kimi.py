"""Kimi K2's calls, whose ids name their functions:

<SECTION BEGIN><CALL BEGIN>functions.NAME:NUMBER<ARGUMENT BEGIN>{...}<CALL END><SECTION END>
"""

import re
from collections.abc import Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import guarded, read_arguments
from engine.text.tool_calls.reader import Malformed, Parsing, Reader
from engine.text.tool_calls.writer import Writer

CALLS_BEGIN, CALLS_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_BEGIN, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
NAME_PREFIX = "functions."
_ID_RUN = re.compile(r"[\w.\-:]+")


def parse_kimi(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output."""
    while (mark := (yield from reader.until((CALLS_BEGIN, CALL_BEGIN, CALLS_END), writer.text))) is not None:
        if mark == CALL_BEGIN:
            reader.hold(mark)
            yield from guarded(reader, writer, _read_block(reader, writer), (CALL_END,))


def _read_block(reader: Reader, writer: Writer) -> Parsing[None]:
    yield from reader.blanks()
    # The template shows this id again, and the model counts on from its number: the call keeps it.
    call_id = yield from reader.word(_ID_RUN, 128)
    name, colon, _ = call_id.removeprefix(NAME_PREFIX).rpartition(":")
    if not (name and colon):
        raise Malformed
    yield from reader.blanks()
    yield from reader.expect(ARGUMENTS)
    yield from reader.blanks()
    yield from read_arguments(reader, writer, name, call_id)
    yield from reader.blanks()
    yield from reader.expect(CALL_END)
