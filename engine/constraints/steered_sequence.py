"""What may come next in one sequence: its thinking budget, then its grammar, both advanced by its tokens alone.

So preemption does not touch the state, and a replay of the tokens rebuilds it.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from engine.constraints.thinking import Thinking
from engine.constraints.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher


class SteeredSequence:
    """The state of a sequence with a constraint or a thinking budget."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        compiled: "Future[LLMatcher] | None",
        thinking: Thinking | None,
        stop_ids: frozenset[int],
    ) -> None:
        """compiled: the constraint, at the beginning of a text; None: there is none. thinking: None: the model is not
        known to think. stop_ids: tokens that end the sequence."""
        self._vocabulary = vocabulary
        self._compiled = compiled
        self._matcher: LLMatcher | None = None
        self._thinking = thinking
        self.stop_ids = stop_ids

    @property
    def is_broken(self) -> bool:
        """Whether no valid text can come any more: every token was forbidden, or a mask had taken too much work."""
        return self._matcher is not None and self._matcher.is_error()

    def advance(self, token_id: int, *, is_thinking: bool, text: str) -> Literal["stop", "abort"] | None:
        """Take a token that does not end the sequence by itself; whether the text is whole now and nothing may follow
        ("stop"), or can become valid no more ("abort"). is_thinking: what there is now ends in thoughts. text: what the
        token has completed of the answer."""
        if self._thinking is None:
            self._grammar().consume_token(token_id)
        else:
            self._take(token_id, self._thinking, is_thinking, text)
        if self._matcher is None or not self._matcher.is_stopped():
            return None
        return "abort" if self._matcher.is_error() else "stop"

    def _take(self, token_id: int, thinking: Thinking, is_thinking: bool, text: str) -> None:
        begins_answer = self._is_thinking
        thinking.advance(token_id, is_thinking=is_thinking)
        if self._compiled is None or self._is_thinking:
            return
        if not begins_answer:
            self._grammar().consume_token(token_id)
        elif text:  # the token that ends the tag has begun the answer, too
            self._grammar().consume_tokens(self._vocabulary.tokenizer.tokenize_str(text))

    @property
    def _is_thinking(self) -> bool:
        return self._thinking is not None and self._thinking.phase == "thinking"

    def grammar(self) -> "LLMatcher | None":
        """The grammar that says what may come next, once it is compiled; None where it does not: in thoughts, and
        without a constraint."""
        if self._matcher is not None and self._thinking is None:
            return self._matcher
        return None if self._is_thinking or self._compiled is None else self._grammar()

    @property
    def is_free(self) -> bool:
        """Whether any token may come next."""
        return self._compiled is None and (self._thinking is None or self._thinking.forced_id is None)

    @property
    def may_think(self) -> bool:
        """Whether `mask_thoughts` is needed."""
        return self._thinking is not None

    def num_allowed(self, drafts: Sequence[int]) -> int:
        """How many leading ones of proposed tokens may come next, where the mask after each of them is known. It is not
        before and in thoughts that a grammar follows, since their end depends on their text, nor behind a budget."""
        thinking = self._thinking
        if thinking is not None and thinking.phase != "answer":
            return 0 if self._compiled is not None else min(len(drafts), max(0, thinking.num_left - 1))
        if self._compiled is None:
            return len(drafts)
        matcher = self._grammar()
        return 0 if matcher.is_error() else matcher.validate_tokens(list(drafts))

    def fill_masks(self, rows: NDArray[np.int32], drafts: Sequence[int]) -> None:
        """Masks [len(drafts) + 1, num_words] of the next token and of the one after each of these proposed tokens,
        which `num_allowed` has let pass. The state stays as it is."""
        matcher = self._grammar()
        num_taken = 0
        for index, row in enumerate(rows):
            if index:
                if matcher.is_stopped():  # nothing may follow: the sequence ends with the token before
                    rows[index:] = -1
                    break
                matcher.consume_token(drafts[index - 1])
                num_taken += 1
            matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
            self._vocabulary.allow_ends(rows, (index,), self.stop_ids)
            if self.may_think:
                self.mask_thoughts(row)
        if num_taken:
            matcher.rollback(num_taken)

    def mask_thoughts(self, row: NDArray[np.int32]) -> None:
        """Make the grammar's mask [num_words], or a row of any content where `grammar` is None, that of the next token:
        thoughts are free up to their budget, and before them their tag may come."""
        vocabulary, thinking = self._vocabulary, self._thinking
        assert thinking is not None
        if thinking.phase == "thinking":
            if (forced := thinking.forced_id) is not None:
                row[:] = 0
                vocabulary.set_bits(row, (forced,), to=True)
            else:  # no end before the answer
                row[:] = -1
                vocabulary.set_bits(row, self.stop_ids, to=False)
        elif thinking.phase == "start" and thinking.begin_id is not None:
            vocabulary.set_bits(row, (thinking.begin_id,), to=True)

    def _grammar(self) -> "LLMatcher":
        if self._matcher is None:
            assert self._compiled is not None
            self._matcher = self._compiled.result().deep_copy()
        return self._matcher
