"""Simulated arenas: models of known strength, voters who draw from them, and pairs drawn in one of three ways.

The parts that decide are the product's: the fit, the table of pairs and the statements. Votes come in batches; pairs
are weighed before each batch, as the controller weighs them every few seconds.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from ratings.bradley_terry import NORMAL_975, POINTS, Fit, fit_bradley_terry
from ratings.graph import IntArray
from ratings.outcomes import OUTCOMES, FloatArray, Outcome, Tally
from ratings.pairing import FLOOR, PairTable, misordering

Mode = Literal["uniform", "win_rate_error", "active"]

#: Points between neighbours, from the top: like a board's, most are plain and two are small.
UNEVEN_GAPS = (60, 15, 45, 20, 80, 18, 35, 25, 50)
EVEN_TIES = 0.3  #: share of ties between equal models


def strengths_of(gaps: tuple[float, ...]) -> FloatArray:
    """Strengths in log units, the best model first, with these gaps in points."""
    return -np.concatenate([[0.0], np.cumsum(gaps)]) / POINTS


@dataclass(eq=False)
class Arena:
    """Votes on models of these strengths (log units), by voters who follow Rao and Kupper's model with the share `ties`
    of ties between equals."""

    strengths: FloatArray
    rng: np.random.Generator
    ties: float = EVEN_TIES
    mode: Mode = "active"
    num_votes: int = 0
    shares: FloatArray = field(init=False)  #: of the pairs in the last batch

    def __post_init__(self) -> None:
        size = len(self.strengths)
        self.names = tuple(f"{position:03}" for position in range(size))
        self.pairs = np.triu_indices(size, 1)
        gaps = self.strengths[self.pairs[0]] - self.strengths[self.pairs[1]]
        barrier = (1.0 + self.ties) / (1.0 - self.ties)
        self._won, self._lost = 1.0 / (1.0 + barrier * np.exp(-gaps)), 1.0 / (1.0 + barrier * np.exp(gaps))
        self._by_side = np.zeros((size, size, len(OUTCOMES)))  # the better model is side a: sides do not matter here
        self.shares = np.full(len(gaps), 1.0 / len(gaps))

    @property
    def tally(self) -> Tally:
        """All votes so far."""
        a_won, b_won, tied, both_bad = np.moveaxis(self._by_side, 2, 0)
        return Tally(self.names, a_won + b_won.T, tied + tied.T, both_bad + both_bad.T, self._by_side.copy())

    def vote(self, num_votes: int) -> None:
        """Weigh the pairs, then draw and vote so many times."""
        self.shares = self._weigh()
        drawn = self.rng.multinomial(num_votes, self.shares / self.shares.sum())
        won = self.rng.binomial(drawn, self._won)
        lost = self.rng.binomial(drawn - won, np.minimum(self._lost / (1.0 - self._won), 1.0))
        votes = (won, lost, drawn - won - lost)
        for outcome, number in zip((Outcome.A, Outcome.B, Outcome.TIE), votes, strict=True):
            self._by_side[(*self.pairs, OUTCOMES.index(outcome))] += number
        self.num_votes += num_votes

    def fit(self) -> Fit:
        """The plain fit of all votes so far."""
        return fit_bradley_terry(self.tally)

    def _weigh(self) -> FloatArray:
        match self.mode:
            case "uniform":
                return self.shares
            case "win_rate_error":
                return _win_rate_error(self.tally, self.pairs)
            case "active":
                table = PairTable(self.names, misordering(self.tally))
                return np.array([table.probability(*pair) for pair in combinations(self.names, 2)])


def one_look(fit: Fit) -> FloatArray:
    """Matrix: whether the 95 % interval of the difference, made for one look, has the row above the column."""
    variances = np.diag(fit.covariance)
    errors = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - 2.0 * fit.covariance, 1e-12))
    above: FloatArray = fit.strengths[:, None] - fit.strengths[None, :] > NORMAL_975 * errors
    return above


def _win_rate_error(tally: Tally, pairs: tuple[IntArray, ...]) -> FloatArray:
    """Shares by what one more vote takes off the error of a pair's win rate (arXiv 2403.04132, eq. 9), as Agon's
    active mode was before."""
    battles, won, drawn = (matrix[pairs] for matrix in (tally.battles, tally.wins, tally.draws))
    mean = (won + 1 + 0.5 * drawn) / (battles + 2)
    variance = (won + 1 + 0.25 * drawn) / (battles + 2) - mean**2
    seen = np.maximum(battles, 0.5)
    gain = np.sqrt(variance / seen) - np.sqrt(variance / (seen + 1))
    shares: FloatArray = (1.0 - FLOOR) * gain / gain.sum() + FLOOR / len(gain)
    return shares
