"""Position bias: how much the answer shown first (side a) gains by its place alone."""

from dataclasses import dataclass

import numpy as np

from ratings.bradley_terry import NORMAL_975, POINTS, Fit, laplacian, logistic, sandwich
from ratings.errors import ConvergenceError
from ratings.outcomes import OUTCOMES, SCORES, FloatArray
from ratings.style import COEFFICIENT_PENALTY

_MAX_STEPS = 100
_PATIENCE = 30  #: steps after which a likelihood that no longer climbs will do
_FARTHEST_START = 8.0  #: log units; strengths at equal style may be far from those of the votes alone


@dataclass(frozen=True, slots=True)
class PositionBias:
    """Rating points of side a for standing first, and the 95 % interval; None if the votes cannot support one."""

    points: float
    lower: float | None
    upper: float | None


def position_bias(fit: Fit) -> PositionBias | None:
    """The effect of side a, fitted jointly with the strengths to the votes inside the core, a tie being half a win;
    None without a core. Sides are drawn by a fair coin, so that the ratings hardly depend on it. Raises
    ConvergenceError."""
    core = fit.groups.core
    if not core.any():
        return None
    cells = fit.tally.by_side[np.ix_(core, core)]
    votes, points = cells.sum(axis=2), cells @ np.array([SCORES[outcome] for outcome in OUTCOMES])
    x = np.append(np.clip(fit.strengths[core], -_FARTHEST_START, _FARTHEST_START), 0.0)
    value = _likelihood(x, votes, points)
    for number in range(_MAX_STEPS):
        chance = _chances(x)
        residual = points - votes * chance
        slope = np.append(residual.sum(axis=1) - residual.sum(axis=0), residual.sum() - COEFFICIENT_PENALTY * x[-1])
        curvature = _matrix(votes * chance * (1.0 - chance))
        scale = np.trace(curvature) / len(x)
        curvature[:-1, :-1] += scale
        curvature[-1, -1] += COEFFICIENT_PENALTY
        curvature[np.diag_indices(len(x))] += 1e-14 * scale
        step = np.linalg.solve(curvature, slope)
        for _ in range(40):
            new_value = _likelihood(x + step, votes, points)
            if new_value >= value - 1e-12 * abs(value):
                break
            step = 0.5 * step
        else:
            return _estimate(x, cells)  # rounding hides any further climb
        gained = new_value - value
        x, value = x + step, new_value
        if np.abs(step).max() < 1e-8 or (number >= _PATIENCE and gained <= 1e-12 * abs(value)):
            return _estimate(x, cells)
    raise ConvergenceError(f"no convergence in {_MAX_STEPS} Newton steps")


def _likelihood(x: FloatArray, votes: FloatArray, points: FloatArray) -> float:
    gaps = x[:-1, None] - x[None, :-1] + x[-1]
    return (
        float((points * gaps - votes * np.logaddexp(0.0, gaps)).sum()) - 0.5 * COEFFICIENT_PENALTY * float(x[-1]) ** 2
    )


def _estimate(x: FloatArray, cells: FloatArray) -> PositionBias:
    chance = _chances(x)
    scores = np.array([SCORES[outcome] for outcome in OUTCOMES])
    scatter = (cells * (scores - chance[:, :, None]) ** 2).sum(axis=2)
    curvature = _matrix(cells.sum(axis=2) * chance * (1.0 - chance))
    covariance, determined = sandwich(curvature, _matrix(scatter), len(x) - 1)
    points = POINTS * float(x[-1])
    if not determined[-1]:  # one model of every pair was always on the same side
        return PositionBias(points, None, None)
    half_width = NORMAL_975 * POINTS * float(max(covariance[-1, -1], 0.0)) ** 0.5
    return PositionBias(points, points - half_width, points + half_width)


def _chances(x: FloatArray) -> FloatArray:
    """P(row on side a beats column on side b)."""
    return logistic(x[:-1, None] - x[None, :-1] + x[-1])


def _matrix(per_pair: FloatArray) -> FloatArray:
    """Sum over pairs of `per_pair` times x x^T, x being one for the row's model and the side, minus one for the
    column's model."""
    edge = per_pair.sum(axis=1) - per_pair.sum(axis=0)
    matrix: FloatArray = np.block(
        [[laplacian(per_pair + per_pair.T), edge[:, None]], [edge[None, :], np.array([[per_pair.sum()]])]]
    )
    return matrix
