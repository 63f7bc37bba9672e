"""Where a sequence is: before, in or after its thoughts; and how many tokens it may still think. Knows no grammar."""

from collections.abc import Sequence
from typing import Literal

Phase = Literal["start", "thinking", "answer"]


class Thinking:
    """The phase of one sequence, advanced by each of its tokens.

    A model whose begin tag is one token may choose with its first token whether to think. A tag of several tokens is
    text like any other: such a model thinks only where its prompt ends with the tag.
    """

    def __init__(self, begin_ids: Sequence[int], end_ids: Sequence[int], *, is_open: bool, budget: int | None) -> None:
        """begin_ids, end_ids: tokens of the tags. is_open: the prompt ends with the begin tag. budget: most tokens
        between the tags; None: no limit."""
        may_choose = len(begin_ids) == 1 and not is_open
        self.phase: Phase = "thinking" if is_open else "start" if may_choose else "answer"
        self.begin_id = begin_ids[0] if may_choose else None
        self._end_ids = tuple(end_ids)
        self._budget = budget
        self.num_tokens = 0  #: that it has thought
        self._num_matched = 0  # how many tokens of the end tag the thoughts end with

    @property
    def forced_id(self) -> int | None:
        """The only token that may come next: the budget is used up, and the end tag is being written."""
        if self.phase != "thinking" or self._budget is None or self.num_tokens < self._budget:
            return None
        return self._end_ids[self._num_matched]

    def leave_room(self, most: int) -> None:
        """Think at most so many tokens, since an answer must follow; below 0: not at all."""
        if most < 0:
            self.begin_id = None
        self._budget = max(0, most) if self._budget is None else min(self._budget, max(0, most))

    @property
    def num_end_ids(self) -> int:
        """Tokens of the end tag."""
        return len(self._end_ids)

    @property
    def num_left(self) -> int:
        """Tokens that may still be thought freely, if the sequence thinks or will; there is a budget."""
        assert self._budget is not None
        return self._budget - self.num_tokens

    def advance(self, token_id: int, *, is_thinking: bool) -> None:
        """Take the next token; is_thinking: the text with it ends in thoughts."""
        if self.phase == "start":
            self.phase = "thinking" if token_id == self.begin_id else "answer"
        elif self.phase == "thinking":
            self.num_tokens += 1
            self._match(token_id)
            if not is_thinking or self._num_matched == len(self._end_ids):
                self.phase = "answer"

    def _match(self, token_id: int) -> None:
        """The longest beginning of the end tag that the thoughts end with; tags are short, and few begin twice."""
        matched = (*self._end_ids[: self._num_matched], token_id)
        while matched and matched != self._end_ids[: len(matched)]:
            matched = matched[1:]
        self._num_matched = len(matched)
