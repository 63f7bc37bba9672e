"""Phi-4's calls: a JSON list of them between tags, or after the word `functools`."""

from collections.abc import Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import guarded, read_calls
from engine.text.tool_calls.reader import Malformed, Parsing, Reader
from engine.text.tool_calls.writer import Writer

CALLS, END = "<|tool_call|>", "<|/tool_call|>"
WORD = "functools["


def parse_phi(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output, in both forms."""
    while (mark := (yield from reader.until((CALLS, WORD), writer.text))) is not None:
        reader.hold(mark)
        if mark == WORD:
            reader.unread("[")
        yield from guarded(reader, writer, _read_block(reader, writer), (END,))


def _read_block(reader: Reader, writer: Writer) -> Parsing[None]:
    yield from reader.blanks()
    if (yield from reader.peek()) not in ("[", "{"):
        raise Malformed
    yield from read_calls(reader, writer)
    yield from reader.blanks()
    yield from reader.skip(END)
