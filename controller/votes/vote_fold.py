"""The fold of the vote log from which every board is computed: for each board pair counts and style columns.

Knows no store and no fit. Votes are added once, in the order of the log, in constant time each.
"""

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from ratings.outcomes import OUTCOMES, Outcome, PairCounts
from ratings.style import STYLE_FEATURES, AnswerStyle, VoteColumns, style_differences
from wire.votes import StyleCounts, VoteRecord

#: Which votes a board counts. The overall board has every rated vote: anonymous battles without a flag.
BOARDS: dict[str, Callable[[VoteRecord], bool]] = {
    "overall": lambda vote: vote.is_rated,
    "decisive": lambda vote: vote.is_rated and vote.outcome in ("a", "b"),
    "multi_turn": lambda vote: vote.is_rated and vote.turns > 1,
    "named": lambda vote: vote.flags == ("named",),
}


class VoteFold:
    """Owns the counts of all boards. Not thread-safe: fits get copies by `snapshot` and `columns`."""

    def __init__(self) -> None:
        self.counts = {board: PairCounts() for board in BOARDS}
        self.last_vote_id: str | None = None
        self.num_seen = 0
        self._models: dict[str, int] = {}
        self._columns = {board: _Columns() for board in BOARDS}

    def add(self, vote: VoteRecord) -> None:
        """Count one vote on the boards that take it. A record of a model against itself is left out: one bad line of an
        import must not stop the boards."""
        self.last_vote_id = vote.vote_id
        self.num_seen += 1
        if vote.a.model == vote.b.model:
            return
        a, b = (self._models.setdefault(side.model, len(self._models)) for side in (vote.a, vote.b))
        covariates = style_differences(_style(vote.a.style), _style(vote.b.style))
        for board, counts_it in BOARDS.items():
            if counts_it(vote):
                self.counts[board].add(vote.a.model, vote.b.model, vote.outcome)
                self._columns[board].add(a, b, OUTCOMES.index(Outcome(vote.outcome)), covariates)

    def skip(self, vote_id: str) -> None:
        """Pass over an entry of the log that cannot be read."""
        self.last_vote_id = vote_id
        self.num_seen += 1

    def snapshot(self, board: str) -> PairCounts:
        """A copy of one board's counts, which later votes do not change."""
        copy = PairCounts()
        copy.merge(self.counts[board])
        return copy

    def columns(self, board: str) -> VoteColumns:
        """A copy of one board's votes as columns, for the fit with style control."""
        return self._columns[board].freeze(tuple(self._models))


class _Columns:
    """Votes of one board as columns, about 44 bytes each."""

    def __init__(self) -> None:
        self._positions = array("i")
        self._covariates = array("d")

    def add(self, a: int, b: int, outcome: int, covariates: Sequence[float]) -> None:
        self._positions.extend((a, b, outcome))
        self._covariates.extend(covariates)

    def freeze(self, models: tuple[str, ...]) -> VoteColumns:
        positions = np.array(self._positions, dtype=np.int64).reshape(-1, 3)
        covariates = np.array(self._covariates, dtype=np.float64).reshape(-1, len(STYLE_FEATURES))
        weight = np.ones(len(positions))
        a, b, outcome = positions.T
        return VoteColumns(models, STYLE_FEATURES, a, b, outcome, weight, covariates)


def _style(counts: StyleCounts) -> AnswerStyle:
    return AnswerStyle(counts.tokens, counts.headers, counts.lists, counts.bold)
