"""Style control: strengths fitted jointly with the effect of longer or more decorated answers.

Each vote carries style differences between its two answers. They are z-scored and enter the logit next to the
strengths, so that a strength is the one at equal style. Unlike the plain fit this one reads every vote, as
columns. The caller counts tokens and markdown; this module only takes the numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from ratings.bradley_terry import GROUP_RIDGE, NORMAL_975, POINTS, Fit, fit_groups, laplacian, place_groups
from ratings.errors import InvalidVoteError
from ratings.graph import BoolArray, IntArray, find_groups
from ratings.joint import Observations, fit_jointly
from ratings.options import FitModel
from ratings.outcomes import OUTCOMES, SCORES, FloatArray, Outcome, PairCounts, Tally, Vote

COEFFICIENT_PENALTY = 0.5  #: pull of a coefficient towards zero, in votes: next to nothing on a real board

_POINTS_OF_A = np.array([SCORES[outcome] for outcome in OUTCOMES])


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
    """Votes as columns: positions of the models and of the outcome in OUTCOMES, weights (how many equal votes one
    stands for), covariates [vote, feature].

    `probability` is that of drawing the unordered pair, NaN where it is unknown. `has_style` is False where the style
    of the answers is unknown; the covariates of such a vote are not read. `voter` is any number of the voter, or -1.
    Each of these three may be left out: then nothing is unknown of style, and nothing known of the others. Raises
    InvalidVoteError if columns differ in length.
    """

    models: tuple[str, ...]
    features: tuple[str, ...]
    model_a: IntArray
    model_b: IntArray
    outcome: IntArray
    weight: FloatArray
    covariates: FloatArray
    probability: FloatArray = field(default_factory=lambda: np.zeros(0))
    has_style: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    voter: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        num_votes = len(self.model_a)
        for name, unknown in (("probability", np.nan), ("has_style", True), ("voter", -1)):
            column = getattr(self, name)
            if num_votes and not len(column):
                object.__setattr__(self, name, np.full(num_votes, unknown, dtype=column.dtype))
        columns = ("model_b", "outcome", "weight", "covariates", "probability", "has_style", "voter")
        if any(len(getattr(self, name)) != num_votes for name in columns):
            raise InvalidVoteError(f"every column of {num_votes} votes needs as many entries")

    @classmethod
    def from_votes(
        cls, votes: Iterable[Vote], *, features: Sequence[str] = STYLE_FEATURES, models: Sequence[str] = ()
    ) -> "VoteColumns":
        """Columns of all votes without flags. `models` adds models that have no vote. Raises InvalidVoteError if a
        vote has other covariates than `features`; None is allowed."""
        kept = [vote for vote in votes if not vote.flags]
        if any(vote.covariates is not None and len(vote.covariates) != len(features) for vote in kept):
            raise InvalidVoteError(f"every vote needs the covariates {tuple(features)}")
        names = tuple(sorted({*models, *(v.model_a for v in kept), *(v.model_b for v in kept)}))
        position = {name: index for index, name in enumerate(names)}
        voters: dict[str, int] = {}
        none = (0.0,) * len(features)
        covariates = [none if vote.covariates is None else vote.covariates for vote in kept]
        probability = [np.nan if vote.probability is None else vote.probability for vote in kept]
        voter = [-1 if vote.voter is None else voters.setdefault(vote.voter, len(voters)) for vote in kept]
        return cls(
            names,
            tuple(features),
            np.array([position[vote.model_a] for vote in kept], dtype=np.int64),
            np.array([position[vote.model_b] for vote in kept], dtype=np.int64),
            np.array([OUTCOMES.index(Outcome(vote.outcome)) for vote in kept], dtype=np.int64),
            np.array([vote.weight for vote in kept], dtype=np.float64),
            np.array(covariates, dtype=np.float64).reshape(len(kept), len(features)),
            np.array(probability, dtype=np.float64),
            np.array([vote.covariates is not None for vote in kept], dtype=bool),
            np.array(voter, dtype=np.int64),
        )

    @property
    def score(self) -> FloatArray:
        """Points of side a: 1, 0.5 or 0."""
        points: FloatArray = _POINTS_OF_A[self.outcome]
        return points

    def counts(self) -> PairCounts:
        """The same votes as pair counts."""
        repeats = self.weight.astype(np.int64)
        columns = (np.repeat(column, repeats) for column in (self.model_a, self.model_b, self.outcome))
        return PairCounts.from_arrays(self.models, *columns)

    def over(self, models: Sequence[str]) -> "VoteColumns":
        """The same votes with the positions of `models`, which has all models of these and may have more."""
        if tuple(models) == self.models:
            return self
        index = {name: position for position, name in enumerate(models)}
        place = np.array([index[name] for name in self.models], dtype=np.int64)
        return replace(self, models=tuple(models), model_a=place[self.model_a], model_b=place[self.model_b])


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Effect of one feature on the log odds per standard deviation of its difference, with its 95 % interval; the
    bounds are NaN if the votes do not determine it."""

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
    """Strengths at equal style and the coefficients that were fitted with them; none of either without style."""

    fit: Fit
    coefficients: tuple[Coefficient, ...]


def fit_votes(
    votes: VoteColumns,
    *,
    fit: FitModel = "bradley_terry",
    style: bool = True,
    weights: FloatArray | None = None,
    penalty: float = COEFFICIENT_PENALTY,
    group_ridge: float = GROUP_RIDGE,
) -> StyleFit:
    """Joint fit on the votes inside the core; models outside it are placed by their plain votes, as in the plain fit.

    `weights` [vote] says what a vote weighs, by default one. `penalty` is in votes. The published implementations of a
    mean loss with L2 = 1 correspond to the number of votes, which shrinks an effect to a fraction of itself. Raises
    ConvergenceError.
    """
    tally = votes.counts().tally(votes.models)
    groups = find_groups(tally.scores)
    weight = votes.weight if weights is None else votes.weight * weights
    square = weight if weights is None else weight * weights
    points = points_of(votes, weight)
    if style:
        covariates = _standardised(votes)
        seen = Observations(votes.model_a, votes.model_b, votes.score, weight, square, covariates)
    else:
        seen = cells(votes, weight, square)
    estimate = fit_jointly(
        seen, fit_groups(points, groups), groups.core, with_ties=fit == "rao_kupper", penalty=penalty if style else 0.0
    )
    strengths = place_groups(points, estimate.strengths, groups, group_ridge)
    size = len(strengths)
    covariance = estimate.covariance[:size, :size]
    return StyleFit(
        Fit(votes.models, strengths, covariance, groups, tally, estimate.tie_width),
        _coefficients(votes.features, estimate.coefficients, np.diag(estimate.covariance)[size:]) if style else (),
    )


def points_of(votes: VoteColumns, weight: FloatArray) -> FloatArray:
    """Points of the row's model against the column's, each vote with its `weight`."""
    size = len(votes.models)
    pair, score = votes.model_a * size + votes.model_b, votes.score
    won, lost = (np.bincount(pair, weight * share, size**2).reshape(size, size) for share in (score, 1.0 - score))
    points: FloatArray = (won + lost.T).astype(np.float64)
    return points


def cells(votes: VoteColumns, weight: FloatArray, square: FloatArray) -> Observations:
    """The votes as sums over equal pair and outcome, without covariates."""
    size = len(votes.models)
    cell = (votes.model_a * size + votes.model_b) * 3 + np.rint(2.0 * votes.score).astype(np.int64)
    weights, squares = (np.bincount(cell, column, 3 * size**2).astype(np.float64) for column in (weight, square))
    filled = np.flatnonzero(weights)
    pair, half_points = np.divmod(filled, 3)
    return Observations(
        pair // size, pair % size, 0.5 * half_points, weights[filled], squares[filled], np.zeros((len(filled), 0))
    )


def cells_of(tally: Tally) -> Observations:
    """The same from pair counts."""
    a, b = np.nonzero(tally.wins)
    first, second = np.nonzero(np.triu(tally.draws))
    weight = np.concatenate([tally.wins[a, b], tally.draws[first, second]])
    score = np.concatenate([np.ones(len(a)), np.full(len(first), 0.5)])
    sides = np.concatenate([a, first]), np.concatenate([b, second])
    return Observations(*sides, score, weight, weight, np.zeros((len(weight), 0)))


def _coefficients(features: Sequence[str], values: FloatArray, variances: FloatArray) -> tuple[Coefficient, ...]:
    return tuple(
        Coefficient(name, float(value), float(value - NORMAL_975 * error), float(value + NORMAL_975 * error))
        for name, value, error in zip(features, values, np.sqrt(variances[: len(values)]), strict=True)
    )


def _standardised(votes: VoteColumns) -> FloatArray:
    """Covariates in standard deviations of the votes whose style is known.

    The others get the difference that is expected of their pair, so that they count for the strengths at equal style
    and say nothing about the coefficients: a zero would claim equal style and dilute them (0.49 became 0.36).
    """
    known = votes.has_style
    if not known.any():
        return np.zeros_like(votes.covariates)
    repeats, covariates = votes.weight[known], votes.covariates[known]
    centred = covariates - np.average(covariates, axis=0, weights=repeats)
    spread = np.sqrt(np.average(centred**2, axis=0, weights=repeats))
    varies = spread > 1e-12
    z = np.zeros_like(votes.covariates)
    z[known] = np.where(varies, centred / np.where(varies, spread, 1.0), 0.0)
    if not known.all():
        habits = _habits(votes, z)
        z[~known] = habits[votes.model_a[~known]] - habits[votes.model_b[~known]]
    return z


def _habits(votes: VoteColumns, z: FloatArray) -> FloatArray:
    """How each model writes [model, feature]: least squares of differences of habits on the votes whose style is
    known. One vote's pull towards the average settles a model without any."""
    known, size = votes.has_style, len(votes.models)
    a, b, repeats = votes.model_a[known], votes.model_b[known], votes.weight[known]
    pairs = np.bincount(a * size + b, repeats, size**2).reshape(size, size).astype(np.float64)
    columns = (repeats[:, None] * z[known]).T
    totals = np.array([np.bincount(a, column, size) - np.bincount(b, column, size) for column in columns])
    habits: FloatArray = np.linalg.solve(laplacian(pairs + pairs.T) + np.eye(size), totals.reshape(-1, size).T)
    return habits


def _share(first: float, second: float) -> float:
    total = first + second
    return (first - second) / total if total else 0.0
