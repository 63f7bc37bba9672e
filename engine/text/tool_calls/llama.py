"""Calls that are the whole output, as Llama 3 writes them: `{"name": ..., "parameters": {...}}`, several separated by
semicolons, with `<|python_tag|>` before them or without."""

from collections.abc import Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import guarded
from engine.text.tool_calls.json_parts import read_call
from engine.text.tool_calls.reader import Parsing, Reader
from engine.text.tool_calls.writer import Writer

PYTHON_TAG = "<|python_tag|>"


def parse_llama_json(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output. Only an object that names one of the functions is a call: an answer may be JSON, too."""
    names = frozenset(function.name for function in functions)
    reader.hold()
    yield from reader.blanks()
    while True:
        yield from reader.blanks()
        if (yield from reader.peek()) == "{":
            if (yield from guarded(reader, writer, _read_call(reader, writer, names))):
                reader.hold()
                yield from reader.blanks()
                yield from reader.skip(";")
                continue
        else:
            writer.text(reader.held())
        mark = yield from reader.until((PYTHON_TAG,), writer.text)
        if mark is None:
            return
        reader.hold(mark)


def _read_call(reader: Reader, writer: Writer, names: frozenset[str]) -> Parsing[None]:
    yield from read_call(reader, writer, names=names or None, needs_arguments=True)
