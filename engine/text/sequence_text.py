"""The text side of one sequence: detokenizer and stop strings, fed token by token.

The core makes one for each sample; the detokenizer comes from outside. Knows no requests and no pages.
"""

from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from typing import Protocol

from engine.request import StopStrings


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
    """Text of one sample's output, cut before the first stop string."""

    detokenizer: Detokenizer
    stops: StopStrings | None

    def push(self, token_id: int, *, may_stop: bool) -> str:
        """Text to show after this token. may_stop: False before min_tokens, where stop strings do not count."""
        text = self.detokenizer.push((token_id,))
        if self.stops is None:
            return text
        return self.stops.push(text) if may_stop else text

    def flush(self) -> str:
        """Text that was held back, at the end of the sequence; empty after a stop string."""
        rest = self.detokenizer.flush()
        if self.stops is None:
            return rest
        if self.stops.found is not None:
            return ""
        return self.stops.push(rest) + self.stops.flush()


class NoText:
    """The detokenizer of a model without a tokenizer."""

    def push(self, token_ids: ReadOnly[int]) -> str:
        """No text."""
        return ""

    def flush(self) -> str:
        """No text."""
        return ""
