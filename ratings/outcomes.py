"""Votes and their fold into pair counts.

The controller adds each vote once, in O(1); every fit reads the counts, whose size depends on the number of models and
not on the number of votes. Counts are integers, so that the order of votes and of merges cannot change a digit.
Knows no log, no store and no rating.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ratings.errors import InvalidVoteError

FloatArray = NDArray[np.float64]


class Outcome(StrEnum):
    """What the voter said. Side a is the answer shown first."""

    A = "a"
    B = "b"
    TIE = "tie"
    BOTH_BAD = "both_bad"


OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)  #: order of the four numbers in every cell of counts
SCORES: dict[Outcome, float] = {Outcome.A: 1.0, Outcome.B: 0.0, Outcome.TIE: 0.5, Outcome.BOTH_BAD: 0.5}

_CELL_INDEX: dict[str, int] = {outcome.value: index for index, outcome in enumerate(OUTCOMES)}
_EMPTY = [0, 0, 0, 0]


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote as the statistics see it. A vote with any flag stays in the log and is left out of every fit.

    `weight` says for how many identical votes the record stands. `covariates` are the style differences between side a
    and side b, None if they are not known. `prompt` is any key that is equal for equal prompts, for instance a hash.
    `probability` is that of drawing this unordered pair, None if it is not known.
    """

    model_a: str
    model_b: str
    outcome: Outcome | str
    weight: int = 1
    voter: str | None = None
    prompt: str | None = None
    covariates: tuple[float, ...] | None = ()
    flags: frozenset[str] = frozenset()
    probability: float | None = None


@dataclass(frozen=True, eq=False)
class Tally:
    """Pair counts as matrices over `models`: entry [i, j] counts votes between model i and model j, sides forgotten.

    `wins[i, j]` are wins of i over j; `ties` and `both_bad` are symmetric. `by_side[i, j, outcome]` keeps the sides
    apart: votes with i on side a and j on side b, outcomes in the order of OUTCOMES.
    """

    models: tuple[str, ...]
    wins: FloatArray
    ties: FloatArray
    both_bad: FloatArray
    by_side: FloatArray

    @property
    def draws(self) -> FloatArray:
        """Ties of both kinds."""
        return self.ties + self.both_bad

    @property
    def battles(self) -> FloatArray:
        """Votes of each pair, symmetric."""
        return self.wins + self.wins.T + self.draws

    @property
    def scores(self) -> FloatArray:
        """Points of i against j, a tie of either kind as half a win."""
        return self.wins + 0.5 * self.draws


class PairCounts:
    """How often each ordered pair (side a, side b) ended in each outcome. Mutable: one owner adds, others read."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], list[int]] = {}
        self._num_votes = 0

    @property
    def num_votes(self) -> int:
        """Votes counted, with their weights."""
        return self._num_votes

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that has a vote, sorted by name."""
        return tuple(sorted({model for pair in self._cells for model in pair}))

    def add(self, model_a: str, model_b: str, outcome: Outcome | str, weight: int = 1) -> None:
        """Count `weight` equal votes. Raises InvalidVoteError and changes nothing when they cannot be votes."""
        cell = _cell_index(model_a, model_b, outcome, weight)
        self._cells.setdefault((model_a, model_b), [0, 0, 0, 0])[cell] += weight
        self._num_votes += weight

    def add_votes(self, votes: Iterable[Vote]) -> None:
        """Count every vote without flags."""
        for vote in votes:
            if not vote.flags:
                self.add(vote.model_a, vote.model_b, vote.outcome, vote.weight)

    def merge(self, other: "PairCounts") -> None:
        """Add the counts of `other`, which stays as it is."""
        for model_a, model_b, outcome, count in list(other.cells()):
            self.add(model_a, model_b, outcome, count)

    def without(self, *outcomes: Outcome | str) -> "PairCounts":
        """A copy that forgets these outcomes; `without("tie", "both_bad")` is the board of decisive votes."""
        unwanted = {Outcome(outcome) for outcome in outcomes}
        kept = PairCounts()
        for model_a, model_b, outcome, count in self.cells():
            if outcome not in unwanted:
                kept.add(model_a, model_b, outcome, count)
        return kept

    def results(self, model: str, other: str) -> tuple[int, int, int]:
        """Wins, losses and draws of `model` against `other`, on either side."""
        a_won, b_won, *drawn = self._cells.get((model, other), _EMPTY)
        b_lost, a_lost, *drawn_back = self._cells.get((other, model), _EMPTY)
        return a_won + a_lost, b_won + b_lost, sum(drawn) + sum(drawn_back)

    def cells(self) -> Iterator[tuple[str, str, Outcome, int]]:
        """Every non-zero count as (model a, model b, outcome, count)."""
        for (model_a, model_b), counts in self._cells.items():
            for outcome, count in zip(OUTCOMES, counts, strict=True):
                if count:
                    yield model_a, model_b, outcome, count

    def tally(self, models: Sequence[str] | None = None) -> Tally:
        """Matrices over `models`, by default all that have a vote. Votes with a model outside the list are left out."""
        names = self.models if models is None else tuple(models)
        index = {name: position for position, name in enumerate(names)}
        kept = [(index[a], index[b], *cell) for (a, b), cell in self._cells.items() if a in index and b in index]
        by_side = np.zeros((len(names), len(names), len(OUTCOMES)))
        if kept:
            table = np.array(kept, dtype=np.float64)
            first, second = table[:, :2].astype(np.int64).T
            by_side[first, second] = table[:, 2:]
        a_won, b_won, tied, both = np.moveaxis(by_side, 2, 0)
        return Tally(names, a_won + b_won.T, tied + tied.T, both + both.T, by_side)

    @classmethod
    def from_votes(cls, votes: Iterable[Vote]) -> Self:
        """The counts of all votes without flags."""
        counts = cls()
        counts.add_votes(votes)
        return counts

    @classmethod
    def from_arrays(cls, models: Sequence[str], model_a: ArrayLike, model_b: ArrayLike, outcome: ArrayLike) -> Self:
        """Counts from columns: positions in `models` for each side and positions in OUTCOMES, one entry per vote."""
        a, b, o = (np.asarray(column, dtype=np.int64) for column in (model_a, model_b, outcome))
        size = len(models)
        for column, limit in ((a, size), (b, size), (o, len(OUTCOMES))):
            if column.size and not (column.min() >= 0 and column.max() < limit):
                raise InvalidVoteError(f"a position outside 0..{limit - 1}")
        table = np.bincount((a * size + b) * len(OUTCOMES) + o, minlength=size * size * len(OUTCOMES))
        counts = cls()
        for flat in np.flatnonzero(table).tolist():
            pair, cell = divmod(flat, len(OUTCOMES))
            first, second = divmod(pair, size)
            counts.add(models[first], models[second], OUTCOMES[cell], int(table[flat]))
        return counts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PairCounts) and self._cells == other._cells

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"PairCounts({self._num_votes} votes, {len(self._cells)} ordered pairs)"


def _cell_index(model_a: str, model_b: str, outcome: Outcome | str, weight: int) -> int:
    if model_a == model_b:
        raise InvalidVoteError(f"{model_a!r} cannot meet itself")
    if outcome not in _CELL_INDEX:
        raise InvalidVoteError(f"unknown outcome {outcome!r}")
    if not isinstance(weight, int) or weight < 1:
        raise InvalidVoteError(f"a weight is a positive whole number, not {weight!r}")
    return _CELL_INDEX[outcome]
