"""Bradley-Terry strengths from pair counts, by Newton's method, with sandwich intervals.

P(i beats j) = 1 / (1 + exp(strength_j - strength_i)); a tie of either kind is half a win. The fit has two steps. Inside
each strongly connected group the maximum-likelihood gaps are finite and are taken as they are. Between groups they are
not (one side took every point, or they never met), so a small ridge places whole groups. An established board therefore
does not move when a newcomer has only won so far, and such a newcomer still gets a finite place, without an interval.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ratings.errors import ConvergenceError
from ratings.graph import BoolArray, Groups, find_groups, membership
from ratings.outcomes import FloatArray, PairCounts, Tally

POINTS = 400 / math.log(10)  #: points of the board per unit of log strength
CENTER = 1000.0  #: mean rating of the board, or the rating of the anchor model
NORMAL_975 = 1.959963984540054  #: 97.5 % quantile of the standard normal
GROUP_RIDGE = 0.5  #: pull of a group towards the mean, in votes; 20 wins of 20 come out 565 points apart

_MAX_STEPS = 200
_FLAT = 1e-11  #: a direction whose curvature is this share of its parameters' is one that the votes say nothing about


@dataclass(frozen=True, eq=False)
class Fit:
    """Strengths in natural log units; a reference group has the mean zero: the core, or all models with votes where
    there is no core. A model without votes stands at zero.

    `covariance` belongs to the core's strengths against that mean and is NaN elsewhere. `tie_width` is the width of
    ties in log units where the fit has one (ratings/rao_kupper.py), else zero.
    """

    models: tuple[str, ...]
    strengths: FloatArray
    covariance: FloatArray
    groups: Groups
    tally: Tally
    tie_width: float = 0.0

    @property
    def ratings(self) -> FloatArray:
        """Strengths on the board's scale."""
        return CENTER + self.strengths * POINTS

    @property
    def half_widths(self) -> FloatArray:
        """Half of each 95 % interval on the board's scale, NaN outside the core."""
        variances = np.diag(self.covariance)
        return np.sqrt(np.maximum(variances, 0.0)) * (NORMAL_975 * POINTS)

    @property
    def predicted(self) -> FloatArray:
        """Expected points of the model of the row in one vote against the model of the column: the probability that it
        wins, and half of that of a tie where the fit has ties."""
        gaps = self.strengths[:, None] - self.strengths[None, :]
        points: FloatArray = 0.5 * (logistic(gaps - self.tie_width) + logistic(gaps + self.tie_width))
        return points

    def recentred(self, reference: BoolArray) -> "Fit":
        """The same fit measured against the mean of `reference`, a part of the core. Intervals change with it: a
        mean that includes a model with few votes widens the interval of every model."""
        assert reference.any()
        assert not (reference & ~self.groups.core).any()
        voted = self.tally.battles.any(axis=1)
        strengths = np.where(voted, self.strengths - self.strengths[reference].mean(), 0.0)
        core = np.ix_(self.groups.core, self.groups.core)
        share = reference[self.groups.core] / reference.sum()
        contrast = np.eye(len(share)) - share[None, :]
        covariance = np.full_like(self.covariance, np.nan)
        covariance[core] = contrast @ self.covariance[core] @ contrast.T
        return replace(self, strengths=strengths, covariance=covariance)


def fit_bradley_terry(counts: PairCounts | Tally, *, group_ridge: float = GROUP_RIDGE) -> Fit:
    """Fit all models of `counts`."""
    tally = counts if isinstance(counts, Tally) else counts.tally()
    groups = find_groups(tally.scores)
    strengths = place_groups(tally.scores, fit_groups(tally.scores, groups), groups, group_ridge)
    return Fit(tally.models, strengths, core_covariance(tally, strengths, groups.core), groups, tally)


def logistic(gaps: FloatArray) -> FloatArray:
    """1 / (1 + exp(-gaps)), without overflow."""
    chances: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * gaps))
    return chances


def expected_scores(strengths: FloatArray) -> FloatArray:
    """Matrix of P(row beats column)."""
    return logistic(strengths[:, None] - strengths[None, :])


def fit_groups(points: FloatArray, groups: Groups) -> FloatArray:
    """Maximum-likelihood strengths inside every strongly connected group, each group centred on zero."""
    member = membership(groups.strong)
    inside = points * (member @ member.T)
    size = len(points)
    return maximize(inside, np.zeros(size), np.eye(size), gauge=member @ member.T)


def place_groups(points: FloatArray, strengths: FloatArray, groups: Groups, ridge: float) -> FloatArray:
    """Shift whole groups by a penalised fit of the votes between them, then centre the core (or, without one, all
    models that have votes). A model without votes stands at the centre."""
    voted = (points + points.T).any(axis=1)
    if not voted.any():
        return np.zeros(len(points))
    member = membership(groups.strong)
    if member.shape[1] > 1:
        across = points * (1.0 - member @ member.T)
        offsets = maximize(across, strengths, member, ridge=ridge)
        strengths = strengths + member @ offsets
    reference = groups.core if groups.core.any() else voted
    return np.where(voted, strengths - strengths[reference].mean(), 0.0)


def maximize(
    points: FloatArray, base: FloatArray, basis: FloatArray, *, ridge: float = 0.0, gauge: FloatArray | None = None
) -> FloatArray:
    """The x that maximises the log likelihood of strengths `base + basis @ x`, less ridge / 2 times |x| squared.

    `points[i, j]` are the weighted points of i against j. `gauge` spans the directions in which the likelihood is flat;
    x stays zero along them.
    """
    x = np.zeros(basis.shape[1])
    games = points + points.T
    pin = np.zeros((len(x), len(x))) if gauge is None else gauge
    value = _likelihood(points, base) if len(x) else 0.0
    for _ in range(_MAX_STEPS if len(x) else 0):
        chance = expected_scores(base + basis @ x)
        slope = basis.T @ (points - games * chance).sum(axis=1) - ridge * x
        curvature = basis.T @ laplacian(games * chance * (1.0 - chance)) @ basis
        curvature[np.diag_indices(len(x))] += ridge
        scale = np.trace(curvature) / len(x) + 1e-300
        step = np.linalg.solve(curvature + scale * pin + 1e-14 * scale * np.eye(len(x)), slope)
        # Far from the optimum a full Newton step of a logistic likelihood can overshoot: halve until it climbs.
        for _ in range(40):
            new_value = _likelihood(points, base + basis @ (x + step)) - 0.5 * ridge * float((x + step) @ (x + step))
            if new_value >= value - 1e-12 * abs(value):
                break
            step = 0.5 * step
        x, value = x + step, new_value
        if np.abs(step).max() < 1e-8:
            return x
    if len(x):
        raise ConvergenceError(f"no convergence in {_MAX_STEPS} Newton steps")
    return x


def laplacian(edges: FloatArray) -> FloatArray:
    """Sum over pairs of edge times (e_i - e_j)(e_i - e_j)^T, for a symmetric matrix with an empty diagonal."""
    return np.diag(edges.sum(axis=1)) - edges


def core_covariance(tally: Tally, strengths: FloatArray, core: BoolArray) -> FloatArray:
    """Sandwich covariance of the core's strengths, from the votes inside the core; NaN elsewhere."""
    covariance = np.full((len(core), len(core)), np.nan)
    if not core.any():
        return covariance
    inner = np.ix_(core, core)
    chance = expected_scores(strengths[core])
    wins, draws = tally.wins[inner], tally.draws[inner]
    battles = wins + wins.T + draws
    curvature = laplacian(battles * chance * (1.0 - chance))
    surprise = wins * (1.0 - chance) ** 2 + wins.T * chance**2 + draws * (0.5 - chance) ** 2
    covariance[inner], _ = sandwich(curvature, laplacian(surprise), len(chance))
    return covariance


def sandwich(curvature: FloatArray, scatter: FloatArray, num_strengths: int) -> tuple[FloatArray, BoolArray]:
    """H^+ G H^+ with H the curvature of the log likelihood and G the sum over votes of score times score^T, and which
    parameters the votes determine.

    The first `num_strengths` parameters are strengths, along whose mean v both matrices are flat. H + c v v^T is
    inverted: as G v = 0, its second term leaves the product, whatever c is, so that the result is exact. A ridge is
    not: in proportion to all votes it would outgrow the votes of a newcomer (39 % of its intervals were true at two
    million votes). Each parameter is scaled to curvature 1 first, because those of a newcomer and of a leader are
    orders of magnitude apart.
    """
    flat = np.zeros(len(curvature))
    flat[:num_strengths] = 1.0
    filled = curvature + np.trace(curvature[:num_strengths, :num_strengths]) / num_strengths**2 * np.outer(flat, flat)
    unit = np.sqrt(np.diag(filled))
    unit[unit == 0.0] = 1.0
    values, vectors = np.linalg.eigh(filled / np.outer(unit, unit))
    steep = values > _FLAT
    half = vectors[:, steep] / unit[:, None]
    inverse = (half / values[steep]) @ half.T
    return inverse @ scatter @ inverse, (vectors[:, ~steep] ** 2).sum(axis=1) < 1e-6


def _likelihood(points: FloatArray, strengths: FloatArray) -> float:
    gaps = strengths[:, None] - strengths[None, :]
    return -float((points * np.logaddexp(0.0, -gaps)).sum())
