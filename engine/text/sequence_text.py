"""The text side of one sequence: detokenizer, thoughts and stop strings, fed token by token.

The core makes one for each sample; the detokenizer comes from outside. Knows no requests and no pages.
"""

from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from typing import Protocol

from engine.request import StopStrings
from engine.text.thoughts import Said, ThoughtSplitter


class Detokenizer(Protocol):
    """Text of one growing token sequence; never half a character."""

    def push(self, token_ids: ReadOnly[int]) -> str:
        """Text that these tokens complete."""
        ...

    def flush(self) -> str:
        """Text that is left at the end of the sequence."""
        ...


#: Makes the detokenizer of one sequence: (skip_special_tokens, prompt token ids).
DetokenizerFactory = Callable[[bool, tuple[int, ...]], Detokenizer]


@dataclass(slots=True)
class SequenceText:
    """Thoughts and text of one sample's output. The text is cut before the first stop string; thoughts have none."""

    detokenizer: Detokenizer
    stops: StopStrings | None
    splitter: ThoughtSplitter | None = None
    num_thought_tokens: int = 0  #: tags included

    def push(self, token_id: int, *, may_stop: bool) -> Said:
        """What to show after this token. may_stop: False before min_tokens, where stop strings do not count."""
        if self.splitter is None and self.stops is None:
            return Said("", self.detokenizer.push((token_id,)))
        said = self._split(self.detokenizer.push((token_id,)))
        return said if self.stops is None or not may_stop else Said(said.thoughts, self.stops.push(said.text))

    def say_all(self, token_ids: ReadOnly[int]) -> Said:
        """Thoughts and text of a whole output, where stop strings do not count."""
        parts = [self.push(token_id, may_stop=False) for token_id in token_ids]
        parts.append(self.flush())
        return Said("".join([said.thoughts for said in parts]), "".join([said.text for said in parts]))

    def flush(self) -> Said:
        """What was held back, at the end of the sequence; nothing after a stop string."""
        if self.stops is not None and self.stops.found is not None:
            return Said("", "")
        said = self._split(self.detokenizer.flush(), is_token=False)
        if self.splitter is not None:
            rest = self.splitter.flush()
            said = Said(said.thoughts + rest.thoughts, said.text + rest.text)
        if self.stops is None:
            return said
        return Said(said.thoughts, self.stops.push(said.text) + self.stops.flush())

    def _split(self, text: str, *, is_token: bool = True) -> Said:
        if self.splitter is None:
            return Said("", text)
        was_thinking = self.splitter.is_thinking
        said = self.splitter.push(text)
        if is_token and (was_thinking or self.splitter.is_thinking or said.thoughts):
            self.num_thought_tokens += 1
        return said


class NoText:
    """The detokenizer of a model without a tokenizer."""

    def push(self, token_ids: ReadOnly[int]) -> str:
        """No text."""
        return ""

    def flush(self) -> str:
        """No text."""
        return ""
