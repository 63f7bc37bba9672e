"""DeepSeek's calls. V3 writes the arguments in a code block, V3.1 behind the name:

<CALL BEGIN>function<SEP>NAME\\n```json\\n{...}\\n```<CALL END>
<CALL BEGIN>NAME<SEP>{...}<CALL END>
"""

import re
from collections.abc import Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.blocks import NAME_RUN, guarded, read_arguments
from engine.text.tool_calls.reader import Parsing, Reader
from engine.text.tool_calls.writer import Writer

CALLS_BEGIN = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
CALLS_END = "<\uff5ctool\u2581calls\u2581end\uff5c>"
CALL_BEGIN = "<\uff5ctool\u2581call\u2581begin\uff5c>"
CALL_END = "<\uff5ctool\u2581call\u2581end\uff5c>"
SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"
_LINE_RUN = re.compile(r"[^\n<`{]+")


def parse_deepseek(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output, in both forms."""
    while (mark := (yield from reader.until((CALLS_BEGIN, CALL_BEGIN, CALLS_END), writer.text))) is not None:
        if mark == CALL_BEGIN:
            reader.hold(mark)
            yield from guarded(reader, writer, _read_block(reader, writer), (CALL_END,))


def _read_block(reader: Reader, writer: Writer) -> Parsing[None]:
    yield from reader.blanks()
    name = yield from reader.word(NAME_RUN)
    yield from reader.blanks()
    yield from reader.expect(SEPARATOR)
    yield from reader.blanks()
    if (yield from reader.peek()) != "{":
        name = (yield from reader.word(_LINE_RUN)).strip()
        yield from reader.blanks()
        yield from reader.expect("```json")
        yield from reader.blanks()
        yield from read_arguments(reader, writer, name)
        yield from reader.blanks()
        yield from reader.expect("```")
    else:
        yield from read_arguments(reader, writer, name)
    yield from reader.blanks()
    yield from reader.expect(CALL_END)
