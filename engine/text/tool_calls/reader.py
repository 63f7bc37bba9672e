"""The input of a parser of tool calls: text that comes in pieces, read by generators that wait for more of it.

A parser is written as if all text were there. Where it needs a character that has not come it yields, so what it reads
never depends on where the text was cut.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
Parsing = Generator[None, None, T]  #: yields where it needs more input, returns what it has read
Sink = Callable[[str], None]

BLANKS = " \t\r\n"
_BLANK_RUN = re.compile(f"[{BLANKS}]+")


class Malformed(Exception):
    """The text is not of the expected form at the reader's place."""


class Reader:
    """Text that has come and not been read."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._held_from: int | None = None
        self._is_final = False

    def feed(self, piece: str, *, is_final: bool = False) -> None:
        """Append text; is_final: no more comes."""
        start = self._at if self._held_from is None else self._held_from
        self._text = self._text[start:] + piece
        self._at -= start
        if self._held_from is not None:
            self._held_from = 0
        self._is_final = is_final

    def hold(self, mark: str = "") -> None:
        """From here on, with the mark that has just been read, `held` gives back what is read."""
        self._held_from = self._at - len(mark)

    def held(self) -> str:
        """What has been read since `hold`, which ends with this."""
        assert self._held_from is not None
        text, self._held_from = self._text[self._held_from : self._at], None
        return text

    def let_go(self) -> None:
        """What was read since `hold` is not needed."""
        self._held_from = None

    def unread(self, text: str) -> None:
        """Put this text back, which was read last."""
        self._at -= len(text)

    def peek(self) -> Parsing[str]:
        """The next character; empty at the end of the text."""
        while self._at == len(self._text):
            if self._is_final:
                return ""
            yield
        return self._text[self._at]

    def take(self) -> Parsing[str]:
        """Read the next character; empty at the end of the text."""
        character = yield from self.peek()
        self._at += len(character)
        return character

    def has(self, text: str) -> Parsing[bool]:
        """Whether this text comes next."""
        while True:
            ahead = self._text[self._at : self._at + len(text)]
            if len(ahead) == len(text) or self._is_final or not text.startswith(ahead):
                return ahead == text
            yield

    def skip(self, text: str) -> Parsing[bool]:
        """Read this text if it comes next; whether it did."""
        found = yield from self.has(text)
        if found:
            self._at += len(text)
        return found

    def expect(self, text: str) -> Parsing[None]:
        """Read this text. Raises Malformed if another one comes next."""
        if not (yield from self.skip(text)):
            raise Malformed

    def run(self, pattern: re.Pattern[str]) -> str:
        """Read what matches the pattern, of the text that has come. For patterns of one repeated character class."""
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def word(self, pattern: re.Pattern[str], most: int = 256) -> Parsing[str]:
        """Read all characters that match the pattern of one repeated character class. Raises Malformed for none, or
        too many."""
        found = ""
        while (yield from self.peek()) and (piece := self.run(pattern)) and len(found) <= most:
            found += piece
        if not 0 < len(found) <= most:
            raise Malformed
        return found

    def blanks(self) -> Parsing[None]:
        """Read all blanks that come next."""
        while (yield from self.peek()) and self.run(_BLANK_RUN):
            pass

    def until(self, marks: Sequence[str], sink: Sink) -> Parsing[str | None]:
        """Give the text before the first of the marks to `sink`, read that mark and return it; None at the end of the
        text. No mark may be contained in another one."""
        while True:
            found = [(place, mark) for mark in marks if (place := self._text.find(mark, self._at)) >= 0]
            if found:
                place, mark = min(found)
                self._pass(place, sink)
                self._at += len(mark)
                return mark
            num_held = 0 if self._is_final else overlap(self._text[self._at :], marks)
            self._pass(len(self._text) - num_held, sink)
            if self._is_final:
                return None
            yield

    def _pass(self, end: int, sink: Sink) -> None:
        if end > self._at:
            piece, self._at = self._text[self._at : end], end
            sink(piece)


def overlap(text: str, marks: Sequence[str]) -> int:
    """Length of the longest proper beginning of one of the marks at the end of the text."""
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    for length in range(longest, 0, -1):
        tail = text[-length:]
        if any(mark.startswith(tail) and len(mark) > length for mark in marks):
            return length
    return 0
