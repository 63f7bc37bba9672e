"""The output of a parser of tool calls: text, thoughts and calls, in the order in which the model wrote them.

Blanks beside calls are dropped. So are the marks of the format, wherever they stand.
"""

import hashlib
import re
from collections.abc import Sequence

from engine.request import ToolCallDelta
from engine.sampling_params import ToolCallSyntax
from engine.text.thoughts import Said
from engine.text.tool_calls.reader import BLANKS, overlap

_BASE_62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Done(Exception):
    """The one call that was asked for is complete; what follows is dropped."""


class Writer:
    """Collects what a parser has read; the parser of one output owns it."""

    def __init__(self, syntax: ToolCallSyntax, sample_index: int) -> None:
        self._syntax = syntax
        self._sample_index = sample_index
        self._said: list[Said] = []
        self._text = _WithoutMarks(syntax.marks)
        self._arguments = _WithoutMarks(syntax.marks)
        self._blanks = ""  #: at the end of the text: dropped if no text follows after a call
        self._is_after_call = False  #: blanks that follow are dropped
        self.num_calls = 0
        self.is_open = False  #: the arguments of a call are being written
        self.is_thinking = False

    def text(self, piece: str) -> None:
        """Text of the answer."""
        self._show(self._text.push(piece))

    def thoughts(self, piece: str) -> None:
        """What the model thinks."""
        self._said.append(Said(piece, ""))

    def begin_call(self, name: str, written_id: str | None = None) -> None:
        """A call of this function; its arguments follow. written_id: the id that the model gives it; None: none."""
        self._show(self._text.flush())
        self.num_calls += 1
        self.is_open = True
        self._add_call(written_id or call_id(self._syntax, self._sample_index, self.num_calls - 1), name, "")

    def arguments(self, piece: str) -> None:
        """A part of the arguments of the call that has been begun."""
        self._add_arguments(self._arguments.push(piece))

    def end_call(self) -> None:
        """The arguments are complete. Raises Done if no other call is wanted."""
        self._add_arguments(self._arguments.flush())
        self.is_open = False
        self._is_after_call = True
        if self._syntax.is_single:
            raise Done

    def end(self) -> None:
        """No more comes."""
        self._show(self._text.flush())
        self._add_arguments(self._arguments.flush())
        if self._blanks and not self.num_calls:
            self._said.append(Said("", self._blanks))
        self._blanks = ""

    def taken(self) -> list[Said]:
        """What has been written since the last call, in order."""
        said, self._said = self._said, []
        return said

    def _show(self, piece: str) -> None:
        if self._is_after_call:
            piece = piece.lstrip(BLANKS)
        if not piece:
            return
        self._is_after_call = False
        piece = self._blanks + piece
        shown = piece.rstrip(BLANKS)
        self._blanks = piece[len(shown) :]
        if shown:
            self._said.append(Said("", shown))

    def _add_arguments(self, piece: str) -> None:
        if piece:
            self._add_call(None, None, piece)

    def _add_call(self, id: str | None, name: str | None, arguments: str) -> None:
        index = self.num_calls - 1
        if name is None and self._said and (calls := self._said[-1].tool_calls) and calls[-1].index == index:
            last = calls[-1]
            joined = ToolCallDelta(index, last.id, last.name, last.arguments + arguments)
            self._said[-1] = Said("", "", (joined,))
        else:
            self._said.append(Said("", "", (ToolCallDelta(index, id, name, arguments),)))


def call_id(syntax: ToolCallSyntax, sample_index: int, call_index: int) -> str:
    """The id of a call: the same on every replica. Mistral's templates want nine letters and digits."""
    digest = hashlib.blake2b(f"{syntax.id_seed}/{sample_index}/{call_index}".encode(), digest_size=12).digest()
    if syntax.format not in ("mistral", "mistral_list"):
        return f"call_{digest.hex()}"
    number = int.from_bytes(digest, "little")
    return "".join(_BASE_62[number // 62**place % 62] for place in range(9))


class _WithoutMarks:
    """Drops marks from text that comes in pieces, wherever it is cut."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = marks
        self._pattern = re.compile("|".join(map(re.escape, marks))) if marks else None
        self._held = ""

    def push(self, piece: str) -> str:
        if self._pattern is None:
            return piece
        text = self._held + piece
        shown = []
        start = 0
        for found in self._pattern.finditer(text):
            shown.append(text[start : found.start()])
            start = found.end()
        rest = text[start:]
        num_shown = len(rest) - overlap(rest, self._marks)
        self._held = rest[num_shown:]
        return "".join((*shown, rest[:num_shown]))

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held
