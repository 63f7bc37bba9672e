"""Maximum likelihood of strengths together with coefficients of covariates and the width of ties, by Newton's method.

The input is votes, or cells that stand for equal votes, each with a weight. The design matrix is never built: a vote
touches two models, so sums per model and per pair are bincounts. Knows no groups: it fits the core only, and moves no
other strength.
"""

import math
from dataclasses import dataclass

import numpy as np

from ratings.bradley_terry import laplacian, logistic, sandwich
from ratings.errors import ConvergenceError
from ratings.graph import BoolArray, IntArray
from ratings.outcomes import FloatArray

WIDTH_PENALTY = 0.5  #: imagined decisive votes between equals: without a loss of the better model no width is too large

_MAX_STEPS = 100
_PATIENCE = 30  #: steps after which a likelihood that no longer climbs will do; far out it is flat beyond all digits


@dataclass(frozen=True, eq=False)
class Observations:
    """Votes or cells of equal votes, one entry each: positions of both models, points of side a (1, 0.5 or 0), the sum
    of the weights of the votes and the sum of their squares, covariates [entry, feature]."""

    model_a: IntArray
    model_b: IntArray
    score: FloatArray
    weight: FloatArray
    square: FloatArray
    covariates: FloatArray


@dataclass(frozen=True, eq=False)
class JointEstimate:
    """Strengths [model], the core centred on zero and the others as they were given; coefficients [feature]; the width
    of ties in log units, 0 in the Bradley-Terry model; the sandwich covariance of all of them in this order, NaN
    where the votes support none."""

    strengths: FloatArray
    coefficients: FloatArray
    tie_width: float
    covariance: FloatArray


def fit_jointly(
    votes: Observations, start: FloatArray, core: BoolArray, *, with_ties: bool = False, penalty: float = 0.0
) -> JointEstimate:
    """Fit the votes inside the core, from the strengths `start`.

    `with_ties` fits the Rao-Kupper model instead of taking a tie for half a win (ratings/rao_kupper.py); a core without
    ties, or with nothing else, has no width of ties and is fitted as without. `penalty` is the pull of each coefficient
    towards zero, in votes. Raises ConvergenceError.
    """
    inside = core[votes.model_a] & core[votes.model_b]
    if not inside.all():
        votes = Observations(*(getattr(votes, name)[inside] for name in Observations.__dataclass_fields__))
    return _Newton(votes, core, with_ties=with_ties, penalty=penalty).fit(start)


@dataclass(frozen=True, eq=False)
class _Terms:
    """Derivatives of the log likelihood of each vote, by its gap and by the width of ties: the first ones, and the
    second ones with their sign changed. Those by the width are empty where it is not free."""

    by_gap: FloatArray
    by_width: FloatArray
    bend: FloatArray
    bend_mixed: FloatArray
    bend_width: FloatArray


class _Newton:
    """Parameters x: strengths, coefficients, and the width of ties where it is free."""

    def __init__(self, votes: Observations, core: BoolArray, *, with_ties: bool, penalty: float) -> None:
        self.votes = votes
        self.core = core
        self.size, self.num_features = len(core), votes.covariates.shape[1]
        self.penalty = penalty
        self.pair = votes.model_a * self.size + votes.model_b
        self.tied = votes.score == 0.5
        tie_weight, weight = float(votes.weight[self.tied].sum()), float(votes.weight.sum())
        self.has_width = with_ties and 0.0 < tie_weight < weight
        self.tie_share = tie_weight / weight if weight else 0.0
        # In the likelihood of Rao and Kupper a tie is a win of both sides against the width, in that of Bradley and
        # Terry half a win of both.
        self.won = np.where(self.tied, 1.0, votes.score) if self.has_width else votes.score
        self.lost = np.where(self.tied, 1.0, 1.0 - votes.score) if self.has_width else 1.0 - votes.score

    def fit(self, start: FloatArray) -> JointEstimate:
        x = np.concatenate([start, np.zeros(self.num_features), self._first_width()])
        if not len(self.votes.score):
            return self._estimate(x, np.full((len(x), len(x)), np.nan))
        x[: self.size][self.core] -= x[: self.size][self.core].mean()
        value = self._objective(x)
        for number in range(_MAX_STEPS):
            terms = self._terms(x)
            curvature = self._curvature(x, terms, penalty=self.penalty)
            step = np.linalg.solve(self._pinned(curvature), self._slope(x, terms))
            for _ in range(40):
                new_value = self._objective(x + step)
                if new_value >= value - 1e-12 * abs(value):
                    break
                step = 0.5 * step
            else:
                return self._estimate(x, self._covariance(x))  # rounding hides any further climb
            gained = new_value - value
            x, value = x + step, new_value
            if np.abs(step).max() < 1e-8 or (number >= _PATIENCE and gained <= 1e-12 * abs(value)):
                return self._estimate(x, self._covariance(x))
        raise ConvergenceError(f"no convergence in {_MAX_STEPS} Newton steps")

    def _first_width(self) -> list[float]:
        """The width at which equal models tie as often as these votes."""
        return [2.0 * math.atanh(self.tie_share)] if self.has_width else []

    def _estimate(self, x: FloatArray, covariance: FloatArray) -> JointEstimate:
        strengths, coefficients = x[: self.size], x[self.size : self.size + self.num_features]
        return JointEstimate(strengths, coefficients, float(x[-1]) if self.has_width else 0.0, covariance)

    def _gaps(self, x: FloatArray) -> tuple[FloatArray, float]:
        strengths, coefficients = x[: self.size], x[self.size : self.size + self.num_features]
        gaps: FloatArray = strengths[self.votes.model_a] - strengths[self.votes.model_b]
        if self.num_features:
            gaps = gaps + self.votes.covariates @ coefficients
        return gaps, float(x[-1]) if self.has_width else 0.0

    def _objective(self, x: FloatArray) -> float:
        gaps, width = self._gaps(x)
        coefficients = x[self.size : self.size + self.num_features]
        pull = 0.5 * self.penalty * float(coefficients @ coefficients)
        weight = self.votes.weight
        if not self.has_width:
            return float(weight @ (self.won * gaps - np.logaddexp(0.0, gaps))) - pull
        if width <= 0.0:
            return -math.inf
        logs = self.won * np.logaddexp(0.0, width - gaps) + self.lost * np.logaddexp(0.0, width + gaps)
        ties = float(weight[self.tied].sum()) * (2.0 * width + math.log(-math.expm1(-2.0 * width)))
        return ties - float(weight @ logs) - WIDTH_PENALTY * float(np.logaddexp(0.0, width)) - pull

    def _terms(self, x: FloatArray) -> _Terms:
        gaps, width = self._gaps(x)
        wins = logistic(gaps - width)
        if not self.has_width:
            nothing = np.zeros(0)
            return _Terms(self.won - wins, nothing, wins * (1.0 - wins), nothing, nothing)
        losses = logistic(-gaps - width)
        from_wins, from_losses = self.won * (1.0 - wins), self.lost * (1.0 - losses)
        bend_wins, bend_losses = from_wins * wins, from_losses * losses
        more_ties = -2.0 / math.expm1(-2.0 * width)
        fewer_ties = 4.0 * math.exp(-2.0 * width) / math.expm1(-2.0 * width) ** 2
        return _Terms(
            by_gap=from_wins - from_losses,
            by_width=np.where(self.tied, more_ties, 0.0) - from_wins - from_losses,
            bend=bend_wins + bend_losses,
            bend_mixed=bend_losses - bend_wins,
            bend_width=bend_wins + bend_losses + np.where(self.tied, fewer_ties, 0.0),
        )

    def _slope(self, x: FloatArray, terms: _Terms) -> FloatArray:
        """Slope of the penalised likelihood."""
        residual = self.votes.weight * terms.by_gap
        slope = np.concatenate([self._per_model(residual), self._per_feature(residual)])
        slope[self.size :] -= self.penalty * x[self.size : self.size + self.num_features]
        if self.has_width:
            slope = np.append(slope, self.votes.weight @ terms.by_width - WIDTH_PENALTY * _chance(x[-1]))
        return slope

    def _curvature(self, x: FloatArray, terms: _Terms, *, penalty: float) -> FloatArray:
        curvature = self._matrix(self.votes.weight, terms.bend, terms.bend_mixed, terms.bend_width)
        features = np.arange(self.size, self.size + self.num_features)
        curvature[features, features] += penalty
        if self.has_width:
            curvature[-1, -1] += WIDTH_PENALTY * _chance(x[-1]) * (1.0 - _chance(x[-1]))
        return curvature

    def _covariance(self, x: FloatArray) -> FloatArray:
        """The penalty is left out: shrinking a coefficient does not make it more certain."""
        terms = self._terms(x)
        curvature = self._curvature(x, terms, penalty=0.0)
        mixed = terms.by_gap * terms.by_width if self.has_width else terms.by_width
        scatter = self._matrix(self.votes.square, terms.by_gap**2, mixed, terms.by_width**2)
        kept = np.concatenate([self.core, np.ones(len(x) - self.size, dtype=bool)])
        block = np.ix_(kept, kept)
        covariance = np.full_like(curvature, np.nan)
        covariance[block], determined = sandwich(curvature[block], scatter[block], int(self.core.sum()))
        # A feature that never varies, or that follows from others, has no interval; the penalty has fixed its value.
        unknown = np.flatnonzero(kept)[~determined]
        unknown = unknown[unknown >= self.size]
        covariance[unknown, :] = covariance[:, unknown] = np.nan
        return covariance

    def _matrix(self, weight: FloatArray, gap: FloatArray, mixed: FloatArray, width: FloatArray) -> FloatArray:
        """Sum over votes of a quadratic form: `gap` times x x^T, x being the vote's row of the design matrix, `mixed`
        times x for the width of ties, and `width` for it alone."""
        per_vote = weight * gap
        pairs = np.bincount(self.pair, per_vote, self.size**2).reshape(self.size, self.size).astype(np.float64)
        z = self.votes.covariates
        scaled = per_vote[:, None] * z
        cross = np.array([self._per_model(column) for column in scaled.T]).reshape(-1, self.size).T
        matrix: FloatArray = np.block([[laplacian(pairs + pairs.T), cross], [cross.T, z.T @ scaled]])
        if self.has_width:
            edge = np.concatenate([self._per_model(weight * mixed), self._per_feature(weight * mixed)])[:, None]
            matrix = np.block([[matrix, edge], [edge.T, np.array([[weight @ width]])]])
        return matrix

    def _per_model(self, per_vote: FloatArray) -> FloatArray:
        gained, given = (np.bincount(side, per_vote, self.size) for side in (self.votes.model_a, self.votes.model_b))
        totals: FloatArray = (gained - given).astype(np.float64)
        return totals

    def _per_feature(self, per_vote: FloatArray) -> FloatArray:
        totals: FloatArray = self.votes.covariates.T @ per_vote
        return totals

    def _pinned(self, curvature: FloatArray) -> FloatArray:
        """Fill the flat directions: the core's mean, the models outside the core, a feature that never varies."""
        scale = np.trace(curvature) / len(curvature)
        rest = np.zeros(len(curvature) - self.size, dtype=bool)
        core, outside = np.concatenate([self.core, rest]), np.concatenate([~self.core, rest])
        pinned: FloatArray = curvature + scale * np.outer(core, core) + scale * np.diag(outside)
        pinned[np.diag_indices(len(pinned))] += 1e-14 * scale
        return pinned


def _chance(gap: float) -> float:
    return 1.0 / (1.0 + math.exp(-gap))
