"""The text side of one sequence: detokenizer, thoughts, tool calls and stop strings, fed token by token.

The core makes one for each sample; the detokenizer comes from outside. Knows no requests and no pages.
"""

from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from typing import Protocol

from engine.request import StopStrings
from engine.text.thoughts import Said, ThoughtSplitter
from engine.text.tool_calls.parser import ToolCallParser


class Detokenizer(Protocol):
    """Text of one growing token sequence; never half a character."""

    def push(self, token_ids: ReadOnly[int]) -> str:
        """Text that these tokens complete."""
        ...

    def flush(self) -> str:
        """Text that is left at the end of the sequence."""
        ...


#: Makes the detokenizer of one sequence: (skip_special_tokens, texts of special tokens that are not skipped, prompt
#: token ids).
DetokenizerFactory = Callable[[bool, tuple[str, ...], tuple[int, ...]], Detokenizer]


@dataclass(slots=True)
class SequenceText:
    """Thoughts, text and tool calls of one sample's output. The text is cut before the first stop string; thoughts and
    calls have none."""

    detokenizer: Detokenizer
    stops: StopStrings | None
    splitter: ThoughtSplitter | None = None
    calls: ToolCallParser | None = None
    num_thought_tokens: int = 0  #: tags included
    answered: str = ""  #: what the last token has completed of the answer, calls included

    @property
    def is_thinking(self) -> bool:
        """Whether the output so far ends in thoughts."""
        return (self.splitter is not None and self.splitter.is_thinking) or (
            self.calls is not None and self.calls.is_thinking
        )

    @property
    def is_complete(self) -> bool:
        """Whether the output has ended by itself: a stop string, or the only call that was asked for."""
        return (self.stops is not None and self.stops.found is not None) or (
            self.calls is not None and self.calls.is_done
        )

    @property
    def has_tool_calls(self) -> bool:
        """Whether a tool call has begun."""
        return self.calls is not None and self.calls.num_calls > 0

    def push(self, token_id: int, *, may_stop: bool) -> Said:
        """What to show after this token. may_stop: False before min_tokens, where stop strings do not count."""
        if self.splitter is None and self.stops is None and self.calls is None:
            return Said("", self.detokenizer.push((token_id,)))
        said = self._split(self.detokenizer.push((token_id,)))
        return self._until_stop(said) if may_stop else _joined(said)

    def flush(self) -> Said:
        """What was held back, at the end of the sequence; nothing after a stop string."""
        if self.is_complete:
            return Said("", "")
        said = self._split(self.detokenizer.flush(), is_token=False)
        if self.splitter is not None:
            rest = self.splitter.flush()
            said += [Said(rest.thoughts, ""), *self._read_calls(rest.text)]
        if self.calls is not None:
            said += self.calls.flush()
        whole = self._until_stop(said)
        return whole if self.stops is None else whole.then(Said("", self.stops.flush()))

    def _split(self, text: str, *, is_token: bool = True) -> list[Said]:
        """Thoughts, text and calls in the order in which the model wrote them."""
        was_thinking = self.is_thinking
        thoughts = ""
        if self.splitter is not None:
            thoughts, text, _ = self.splitter.push(text)
        self.answered = text
        said = [Said(thoughts, ""), *self._read_calls(text)]
        if is_token and (was_thinking or self.is_thinking or any(piece.thoughts for piece in said)):
            self.num_thought_tokens += 1
        return said

    def _read_calls(self, text: str) -> list[Said]:
        if self.calls is None:
            return [Said("", text)]
        return self.calls.push(text) if text else []

    def _until_stop(self, said: ReadOnly[Said]) -> Said:
        """All of it as one, up to the first stop string."""
        if self.stops is None:
            return _joined(said)
        shown = Said("", "")
        for piece in said:
            shown = shown.then(Said(piece.thoughts, self.stops.push(piece.text), piece.tool_calls))
            if self.stops.found is not None:
                break
        return shown


def _joined(said: ReadOnly[Said]) -> Said:
    whole = Said("", "")
    for piece in said:
        whole = whole.then(piece)
    return whole


class NoText:
    """The detokenizer of a model without a tokenizer."""

    def push(self, token_ids: ReadOnly[int]) -> str:
        """No text."""
        return ""

    def flush(self) -> str:
        """No text."""
        return ""
