"""Style control: strengths fitted jointly with the effect of longer or more decorated answers.

Each vote carries style differences between its two answers. They are z-scored and enter the logit next to the
strengths, so that a strength is the one at equal style. Unlike the plain fit this one reads every vote, as
columns. The caller counts tokens and markdown; this module only takes the numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from ratings.bradley_terry import (
    GROUP_RIDGE,
    NORMAL_975,
    PAIR_FLOOR,
    POINTS,
    Fit,
    fit_groups,
    laplacian,
    pair_weights,
    place_groups,
    sandwich,
)
from ratings.errors import ConvergenceError, InvalidVoteError
from ratings.graph import IntArray, find_groups
from ratings.outcomes import OUTCOMES, SCORES, FloatArray, Outcome, PairCounts, Vote

COEFFICIENT_PENALTY = 0.5  #: pull of a coefficient towards zero, in votes: next to nothing on a real board

_MAX_STEPS = 100


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """Style features of one answer, without its code blocks."""

    tokens: int
    headers: int
    lists: int
    bold: int


STYLE_FEATURES = ("tokens", "headers", "lists", "bold")  #: order of style_differences


def style_differences(a: AnswerStyle, b: AnswerStyle) -> tuple[float, ...]:
    """Covariates of a vote: each feature's difference as a share of its sum, between -1 and 1, zero where both have
    none."""
    return tuple(_share(first, second) for first, second in zip(astuple(a), astuple(b), strict=True))


@dataclass(frozen=True, eq=False)
class VoteColumns:
    """Votes as columns: positions of the models and of the outcome in OUTCOMES, weights, covariates [vote, feature]."""

    models: tuple[str, ...]
    features: tuple[str, ...]
    model_a: IntArray
    model_b: IntArray
    outcome: IntArray
    weight: FloatArray
    covariates: FloatArray

    @classmethod
    def from_votes(
        cls, votes: Iterable[Vote], *, features: Sequence[str] = STYLE_FEATURES, models: Sequence[str] = ()
    ) -> "VoteColumns":
        """Columns of all votes without flags. `models` adds models that have no vote."""
        kept = [vote for vote in votes if not vote.flags]
        if any(len(vote.covariates) != len(features) for vote in kept):
            raise InvalidVoteError(f"every vote needs the covariates {tuple(features)}")
        names = tuple(sorted({*models, *(v.model_a for v in kept), *(v.model_b for v in kept)}))
        position = {name: index for index, name in enumerate(names)}
        return cls(
            names,
            tuple(features),
            np.array([position[vote.model_a] for vote in kept], dtype=np.int64),
            np.array([position[vote.model_b] for vote in kept], dtype=np.int64),
            np.array([OUTCOMES.index(Outcome(vote.outcome)) for vote in kept], dtype=np.int64),
            np.array([vote.weight for vote in kept], dtype=np.float64),
            np.array([vote.covariates for vote in kept], dtype=np.float64).reshape(len(kept), len(features)),
        )

    def counts(self) -> PairCounts:
        """The same votes as pair counts."""
        repeats = self.weight.astype(np.int64)
        columns = (np.repeat(column, repeats) for column in (self.model_a, self.model_b, self.outcome))
        return PairCounts.from_arrays(self.models, *columns)


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Effect of one feature on the log odds per standard deviation of its difference, with its 95 % interval."""

    feature: str
    value: float
    lower: float
    upper: float

    @property
    def points(self) -> float:
        """The effect on the board's scale."""
        return POINTS * self.value


@dataclass(frozen=True, eq=False)
class StyleFit:
    """Strengths at equal style and the coefficients that were fitted with them."""

    fit: Fit
    coefficients: tuple[Coefficient, ...]


def fit_style(
    votes: VoteColumns,
    *,
    reweighted: bool = False,
    pair_floor: int = PAIR_FLOOR,
    penalty: float = COEFFICIENT_PENALTY,
    group_ridge: float = GROUP_RIDGE,
) -> StyleFit:
    """Joint fit on the votes inside the core; models outside it are placed by their plain votes, as in the plain fit.

    `penalty` is in votes. The published implementations of a mean loss with L2 = 1 correspond to the number of votes,
    which shrinks an effect to a fraction of itself.
    """
    tally = votes.counts().tally(votes.models)
    groups = find_groups(tally.scores)
    weights = pair_weights(tally.battles, pair_floor) if reweighted else np.ones_like(tally.wins)
    points = weights * tally.scores
    strengths = fit_groups(points, groups)
    joint = _JointFit(votes, groups.core, weights, penalty)
    coefficients = joint.climb(strengths)
    covariance = joint.covariance(strengths, coefficients)
    size = len(strengths)
    errors = np.sqrt(np.diag(covariance)[size:])
    strengths = place_groups(points, strengths, groups, group_ridge)
    return StyleFit(
        Fit(votes.models, strengths, covariance[:size, :size], groups, tally, weights),
        tuple(
            Coefficient(name, float(value), float(value - NORMAL_975 * error), float(value + NORMAL_975 * error))
            for name, value, error in zip(votes.features, coefficients, errors, strict=True)
        ),
    )


class _JointFit:
    """Newton on strengths of the core and coefficients. The design matrix is never built: a vote touches two models, so
    sums per model and per pair are bincounts."""

    def __init__(self, votes: VoteColumns, core: NDArray[np.bool_], weights: FloatArray, penalty: float) -> None:
        inside = core[votes.model_a] & core[votes.model_b]
        self.size = len(votes.models)
        self.core = core
        self.penalty = penalty
        self.a, self.b = votes.model_a[inside], votes.model_b[inside]
        self.pair = self.a * self.size + self.b
        self.repeats = votes.weight[inside]
        self.weight = weights[self.a, self.b]
        self.score = np.array([SCORES[outcome] for outcome in OUTCOMES])[votes.outcome[inside]]
        self.z = _standardised(votes.covariates[inside], self.repeats)

    def climb(self, strengths: FloatArray) -> FloatArray:
        """Maximise from `strengths`, whose core is moved in place; returns the coefficients."""
        beta = np.zeros(self.z.shape[1])
        if not len(self.a):
            return beta
        strengths[self.core] -= strengths[self.core].mean()
        value = self._objective(strengths, beta)
        for _ in range(_MAX_STEPS):
            chance = self._chance(strengths, beta)
            slope = self._gradient(self.repeats * self.weight * (self.score - chance))
            slope[self.size :] -= self.penalty * beta
            curvature = self._curvature(self.repeats * self.weight * chance * (1.0 - chance))
            curvature[np.arange(self.size, len(curvature)), np.arange(self.size, len(curvature))] += self.penalty
            step = np.linalg.solve(self._pinned(curvature), slope)
            for _ in range(40):
                moved, bent = strengths + step[: self.size], beta + step[self.size :]
                new_value = self._objective(moved, bent)
                if new_value >= value - 1e-12 * abs(value):
                    break
                step = 0.5 * step
            strengths[:], beta, value = moved, bent, new_value
            if np.abs(step).max() < 1e-8:
                return beta
        raise ConvergenceError(f"no convergence in {_MAX_STEPS} Newton steps")

    def covariance(self, strengths: FloatArray, beta: FloatArray) -> FloatArray:
        """Sandwich covariance of strengths and coefficients, NaN outside the core. The penalty is left out of
        the curvature: shrinking a coefficient does not make it more certain."""
        covariance = np.full((self.size + len(beta), self.size + len(beta)), np.nan)
        if not len(self.a):
            return covariance
        chance = self._chance(strengths, beta)
        kept = np.concatenate([self.core, np.ones(len(beta), dtype=bool)])
        block = np.ix_(kept, kept)
        curvature = self._curvature(self.repeats * self.weight * chance * (1.0 - chance))[block]
        scatter = self._curvature(self.repeats * (self.weight * (self.score - chance)) ** 2)[block]
        covariance[block] = sandwich(curvature, scatter, float((self.repeats * self.weight).sum()))
        return covariance

    def _gaps(self, strengths: FloatArray, beta: FloatArray) -> FloatArray:
        gaps: FloatArray = strengths[self.a] - strengths[self.b] + self.z @ beta
        return gaps

    def _chance(self, strengths: FloatArray, beta: FloatArray) -> FloatArray:
        return 0.5 * (1.0 + np.tanh(0.5 * self._gaps(strengths, beta)))

    def _objective(self, strengths: FloatArray, beta: FloatArray) -> float:
        gaps = self._gaps(strengths, beta)
        fit = (self.repeats * self.weight * (np.logaddexp(0.0, gaps) - self.score * gaps)).sum()
        return -float(fit) - 0.5 * self.penalty * float(beta @ beta)

    def _gradient(self, residual: FloatArray) -> FloatArray:
        return np.concatenate([self._per_model(residual), self.z.T @ residual])

    def _curvature(self, per_vote: FloatArray) -> FloatArray:
        """Sum over votes of per_vote times x x^T, x being the vote's row of the design matrix."""
        pairs = np.bincount(self.pair, per_vote, self.size**2).reshape(self.size, self.size).astype(np.float64)
        scaled = per_vote[:, None] * self.z
        cross = np.array([self._per_model(column) for column in scaled.T]).reshape(-1, self.size).T
        return np.block([[laplacian(pairs + pairs.T), cross], [cross.T, self.z.T @ scaled]])

    def _per_model(self, per_vote: FloatArray) -> FloatArray:
        gained, given = (np.bincount(side, per_vote, self.size) for side in (self.a, self.b))
        totals: FloatArray = (gained - given).astype(np.float64)
        return totals

    def _pinned(self, curvature: FloatArray) -> FloatArray:
        """Fill the flat directions: the core's mean, the models outside the core, a feature that never varies."""
        scale = np.trace(curvature) / len(curvature)
        core = np.concatenate([self.core, np.zeros(self.z.shape[1], dtype=bool)])
        outside = np.concatenate([~self.core, np.zeros(self.z.shape[1], dtype=bool)])
        pinned: FloatArray = curvature + scale * np.outer(core, core) + scale * np.diag(outside)
        pinned[np.diag_indices(len(pinned))] += 1e-14 * scale
        return pinned


def _standardised(covariates: FloatArray, repeats: FloatArray) -> FloatArray:
    if not len(covariates):
        return covariates
    centred = covariates - np.average(covariates, axis=0, weights=repeats)
    spread = np.sqrt(np.average(centred**2, axis=0, weights=repeats))
    varies = spread > 1e-12
    return np.where(varies, centred / np.where(varies, spread, 1.0), 0.0)


def _share(first: float, second: float) -> float:
    total = first + second
    return (first - second) / total if total else 0.0
