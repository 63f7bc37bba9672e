"""The output of gpt-oss: messages with a channel each.

    <|channel|>analysis<|message|>THOUGHTS<|end|><|start|>assistant<|channel|>final<|message|>TEXT<|return|>

A message `to=functions.NAME` is a call, whose content is its arguments, where there are functions. The prompt ends
with `<|start|>assistant`.
"""

import re
from collections.abc import Sequence

from engine.sampling_params import ToolFunction
from engine.text.tool_calls.reader import Malformed, Parsing, Reader, Sink
from engine.text.tool_calls.writer import Writer

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
CONSTRAIN, END, CALL, RETURN = "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"
_ENDS = (END, CALL, RETURN)
_MAX_HEADER_CHARS = 512
#: A model may name the channel again behind the recipient.
_HEADER = re.compile(
    r"\s*(?:assistant)?\s*(?:to=(?P<early>\S+?)\s*)?<\|channel\|>\s*(?P<channel>analysis|commentary|final)"
    r"(?:\s+to=(?P<late>[^\s<]+))?(?:\s*<\|channel\|>\s*(?P=channel)(?!\w))?(?:\s*<\|constrain\|>)?\s*\w*\s*"
)
_HEADER_STARTS = ("assistant", "to=", CHANNEL)


def parse_harmony(reader: Reader, writer: Writer, functions: Sequence[ToolFunction]) -> Parsing[None]:
    """The whole output. What is no message is text."""
    said = _Separated(writer)
    while (yield from reader.peek()):
        reader.hold()
        yield from reader.skip(START)
        yield from reader.blanks()
        if not (yield from _begins_header(reader)):
            said.begin(writer.text)
            writer.text(reader.held())
            mark = yield from reader.until((START, CHANNEL, *_ENDS), writer.text)
            if mark not in (START, CHANNEL):
                continue
            reader.hold(mark)
        try:
            channel, recipient = yield from _read_header(reader)
        except Malformed:
            writer.text(reader.held())
            continue
        reader.let_go()
        called = recipient.removeprefix("functions.") if functions and recipient.startswith("functions.") else None
        yield from _read_content(reader, writer, said, channel, called)


class _Separated:
    """Puts a line end between two messages of one kind."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._has_text = self._has_thoughts = False

    def begin(self, sink: Sink) -> None:
        """A message begins that goes to this sink of the writer."""
        if sink == self._writer.thoughts:
            if self._has_thoughts:
                sink("\n")
            self._has_thoughts = True
        else:
            if self._has_text:
                sink("\n")
            self._has_text = True


def _begins_header(reader: Reader) -> Parsing[bool]:
    for start in _HEADER_STARTS:
        if (yield from reader.has(start)):
            return True
    return False


def _read_header(reader: Reader) -> Parsing[tuple[str, str]]:
    """Channel and recipient, up to the content. Raises Malformed."""
    header = ""
    while not (yield from reader.skip(MESSAGE)):
        if (yield from _is_at_mark(reader)) or len(header) == _MAX_HEADER_CHARS:
            raise Malformed
        character = yield from reader.take()
        if not character:
            raise Malformed
        header += character
    found = _HEADER.fullmatch(header.removeprefix(START))
    if found is None:
        raise Malformed
    return found["channel"], found["late"] or found["early"] or ""


def _is_at_mark(reader: Reader) -> Parsing[bool]:
    for mark in _ENDS:
        if (yield from reader.has(mark)):
            return True
    return False


def _read_content(reader: Reader, writer: Writer, said: _Separated, channel: str, called: str | None) -> Parsing[None]:
    """A message's content and its end. called: the function whose arguments it is."""
    if called is not None:
        writer.begin_call(called)
        yield from reader.until(_ENDS, writer.arguments)
        writer.end_call()
        return
    sink = writer.thoughts if channel == "analysis" else writer.text
    writer.is_thinking = channel == "analysis"
    said.begin(sink)
    yield from reader.until(_ENDS, sink)
    writer.is_thinking = False


def begun_message(prompt_end: str) -> str:
    """The header of the answer, as far as the prompt holds it. prompt_end: what follows the last START."""
    header, mark, _ = prompt_end.removeprefix("assistant").partition(MESSAGE)
    return header + mark
