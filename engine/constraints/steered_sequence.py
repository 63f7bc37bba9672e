"""What may come next in one sequence: its thinking budget, then its grammar, both advanced by its tokens alone.

So preemption does not touch the state, and a replay of the tokens rebuilds it.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from engine.constraints.compiler import Grammar
from engine.constraints.thinking import Thinking
from engine.constraints.vocabulary import Vocabulary
from engine.sampling_params import UNBOUNDED

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from engine.constraints.closing import Closer


class SteeredSequence:
    """The state of a sequence with a constraint or a thinking budget."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        compiled: Future[Grammar] | None,
        thinking: Thinking | None,
        stop_ids: frozenset[int],
        most: int = UNBOUNDED,
    ) -> None:
        """compiled: the constraint, at the beginning of a text; None: there is none. thinking: None: the model is not
        known to think. stop_ids: tokens that end the sequence. most: tokens that it may have."""
        self._vocabulary = vocabulary
        self._compiled = compiled
        self._matcher: LLMatcher | None = None
        self._closer: Closer | None = None
        self._num_left = most
        self._thinking = thinking
        self._has_room = thinking is None or compiled is None
        self.stop_ids = stop_ids
        self._leave_room()

    def _leave_room(self) -> None:
        """Bound the thoughts so that an answer fits behind them, once its constraint is compiled."""
        if self._has_room or self._compiled is None or not self._compiled.done():
            return
        self._has_room = True
        thinking, closing = self._thinking, self._compiled.result().closing
        if thinking is not None and closing is not None and thinking.phase != "answer":
            num_tags = thinking.num_end_ids + (thinking.phase == "start")
            thinking.leave_room(self._num_left - num_tags - len(closing.shortest) + thinking.num_tokens)

    @property
    def is_broken(self) -> bool:
        """Whether no valid text can come any more: every token was forbidden, or a mask had taken too much work."""
        return self._matcher is not None and self._matcher.is_error()

    def advance(self, token_id: int, *, is_thinking: bool, text: str) -> Literal["stop", "abort"] | None:
        """Take a token that does not end the sequence by itself; whether the text is whole now and nothing may follow
        ("stop"), or can become valid no more ("abort"). is_thinking: what there is now ends in thoughts. text: what the
        token has completed of the answer."""
        self._num_left -= 1
        self._leave_room()
        if self._thinking is None:
            self._answer(token_id)
        else:
            self._take(token_id, self._thinking, is_thinking, text)
        if self._matcher is None:
            return None
        if not self._matcher.is_stopped():
            is_closed = self._closer is not None and self._num_left == 0 and self._matcher.is_accepting()
            return "stop" if is_closed else None
        return "abort" if self._matcher.is_error() else "stop"

    def _take(self, token_id: int, thinking: Thinking, is_thinking: bool, text: str) -> None:
        begins_answer = self._is_thinking
        thinking.advance(token_id, is_thinking=is_thinking)
        if self._compiled is None or self._is_thinking:
            return
        if not begins_answer:
            self._answer(token_id)
        elif text:  # the token that ends the tag has begun the answer, too
            self._grammar().consume_tokens(self._vocabulary.tokenizer.tokenize_str(text))
            if self._closer is not None:
                self._closer.write(tuple(text.encode()))

    def _answer(self, token_id: int) -> None:
        self._grammar().consume_token(token_id)
        if self._closer is not None:
            self._closer.advance(token_id)

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
        if matcher.is_error():
            return 0
        if self._closer is not None:
            drafts = drafts[: max(0, self._closer.num_safe(self._num_left) - 1)]
        return matcher.validate_tokens(list(drafts))

    def close(self, row: NDArray[np.int32]) -> None:
        """Forbid in a mask [num_words] of the grammar what would leave too few tokens for the rest of the answer."""
        if self._closer is not None and self._matcher is not None and not self._matcher.is_stopped():
            self._closer.close(row, self._num_left, self.stop_ids)

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
            if self._closer is not None:
                self._closer.bound_digits(row, drafts[:index])
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
            from engine.constraints.closing import Closer  # llguidance: only where a grammar is compiled

            grammar = self._compiled.result()
            self._matcher = grammar.start.deep_copy()
            self._closer = None if grammar.closing is None else Closer(grammar.closing)
        return self._matcher
