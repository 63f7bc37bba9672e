"""GLM's calls (4.5 and later):

<tool_call>NAME
<arg_key>KEY</arg_key>
<arg_value>VALUE</arg_value>
</tool_call>
"""

import json
import re
from collections.abc import Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import guarded
from engine.text.tool_calls.json_parts import end_call
from engine.text.tool_calls.reader import Parsing, Reader
from engine.text.tool_calls.schemas import property_is_text
from engine.text.tool_calls.tagged import read_value
from engine.text.tool_calls.writer import Writer

BEGIN, END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"
_RUN = re.compile(r"[^<>\n]+")


def parse_glm(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output."""
    while (mark := (yield from reader.until((BEGIN,), writer.text))) is not None:
        reader.hold(mark)
        yield from guarded(reader, writer, _read_block(reader, writer, functions), (END,))


def _read_block(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    yield from reader.blanks()
    name = (yield from reader.word(_RUN)).strip()
    function = next((function for function in functions if function.name == name), None)
    yield from reader.blanks()
    num_parameters = 0
    while (yield from reader.skip(KEY)):
        key = (yield from reader.word(_RUN)).strip()
        yield from reader.expect(KEY_END)
        yield from reader.blanks()
        yield from reader.expect(VALUE)
        if not num_parameters:
            writer.begin_call(name)
        writer.arguments(f"{', ' if num_parameters else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        num_parameters += 1
        is_text = function is None or property_is_text(function, key)
        yield from read_value(reader, writer, (VALUE_END,), is_text=is_text)
        yield from reader.blanks()
    yield from reader.expect(END)
    if not num_parameters:
        writer.begin_call(name)
        writer.arguments("{")
    writer.arguments("}")
    end_call(reader, writer)
