"""Proposals from the sequence itself: what followed the last earlier occurrence of its newest tokens (prompt look-up).

Each sequence has one dictionary for each length of n-gram, from the n tokens to the position after their last
occurrence. A token is entered once, so a proposal costs a few look-ups however long the sequence is.
"""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass, field

from engine.drafts.proposer import Proposal, Wanted

#: Most rows of a step beside which n-grams are looked up. On CPU a row beyond costs its share of the step, so that only
#: tokens that are nearly always right would pay, and to find that out costs more than they gain.
MOST_ROWS = 16

NGRAM = "ngram"  #: EngineConfig.draft

#: Lengths of the n-grams that are looked up, longest first. A longer one is right more often.
LENGTHS = (6, 4, 3, 2)


@dataclass(slots=True)
class _Index:
    """Positions after the n-grams of one sequence."""

    num_entered: int = 0  #: tokens before which every n-gram is entered
    after: tuple[dict[tuple[int, ...], int], ...] = field(default_factory=lambda: tuple({} for _ in LENGTHS))

    def enter(self, tokens: ReadOnly[int]) -> None:
        """Enter the n-grams that a token follows; tokens: all of the sequence."""
        first, end = self.num_entered, len(tokens)
        for n, after in zip(LENGTHS, self.after, strict=True):
            begin = max(first, n)
            if end - begin > 1:  # a prompt: zip runs without a loop in Python
                grams = zip(*(tokens[begin - n + place : end - n + place] for place in range(n)), strict=True)
                after.update(zip(grams, range(begin, end), strict=True))
            elif begin < end:
                after[tuple(tokens[begin - n : begin])] = begin
        self.num_entered = end


class NgramProposer:
    """Owner of the indices of all sequences."""

    name = "n-gram"
    num_sources = len(LENGTHS)
    max_rows = MOST_ROWS
    is_free = True

    def __init__(self) -> None:
        self._indices: dict[int, _Index] = {}

    def propose(self, wanted: ReadOnly[Wanted]) -> list[Proposal | None]:
        """See Proposer."""
        return [self._propose(each.sequence.sequence_id, each.sequence.token_ids, each.max_tokens) for each in wanted]

    def seconds_per_token(self) -> float:
        """0."""
        return 0.0

    def free_pages(self) -> bool:
        """False: it holds none."""
        return False

    def forget(self, sequence_id: int) -> None:
        """See Proposer."""
        self._indices.pop(sequence_id, None)

    def close(self) -> None:
        """See Proposer."""
        self._indices.clear()

    def _propose(self, sequence_id: int, tokens: ReadOnly[int], max_tokens: int) -> Proposal | None:
        index = self._indices.get(sequence_id)
        if index is None:
            index = self._indices[sequence_id] = _Index()
        index.enter(tokens)
        for source, (n, after) in enumerate(zip(LENGTHS, index.after, strict=True)):
            if (position := after.get(tuple(tokens[-n:]))) is not None:
                drafts = list(tokens[position : position + max_tokens])
                while len(drafts) < max_tokens:  # the occurrence overlaps the end: what repeats goes on repeating
                    drafts += drafts[: max_tokens - len(drafts)]
                return Proposal(tuple(drafts), source)
        return None
