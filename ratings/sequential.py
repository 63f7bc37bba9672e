"""What the votes say of neighbours on a board, valid however often one looks: confidence sequences.

A 95 % interval holds for one look. After enough looks it has excluded a true zero. Here each pair of models has an
e-process, the normal mixture of Robbins (1970) for estimators that become normal (Waudby-Smith, Arbour, Sinha, Kennedy,
Ramdas: arXiv 2103.06476, theorem 2.2). If the two models are equal, it exceeds 1 / alpha at any time with probability
alpha at most. Holm's procedure over all pairs of the board bounds the probability that any statement is ever wrong.

The input is what a fit of the pair counts gives (strengths and their covariance): nothing is kept between two calls,
and the cost depends on the number of models and not on the votes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ratings.bradley_terry import POINTS
from ratings.errors import UnknownModelError
from ratings.graph import BoolArray
from ratings.outcomes import FloatArray

ALPHA = 0.05  #: probability that any statement about a board is ever wrong
TYPICAL_GAP = 25 / POINTS  #: the gap at which statements come earliest, in log strength: 25 points between neighbours


@dataclass(frozen=True, slots=True)
class Statement:
    """What the votes say of two neighbours: whether `above` is better than `below`.

    `lower` and `upper` bound the points by which it is ahead, together for all pairs and times at 95 %; None without an
    interval. If the decision needed Holm's smaller correction, `lower` is 0. `votes_needed`: about so many more votes
    of the whole board decide, if they are drawn as so far; two digits, None if decided or without an interval. In
    simulated arenas half of the forecasts were within a factor of two of what it took (benchmarks/ratings).
    """

    above: str
    below: str
    is_decided: bool
    lower: float | None
    upper: float | None
    votes_needed: int | None


def neighbour_statements(
    order: Sequence[str],
    models: Sequence[str],
    strengths: FloatArray,
    covariance: FloatArray,
    num_votes: int,
    *,
    alpha: float = ALPHA,
) -> tuple[Statement, ...]:
    """One statement for each two neighbours in `order`, from the top.

    `order` names rows with an interval by falling rating; the caller leaves flagged rows out. `strengths[model]` and
    `covariance[model, model]` follow `models`, in log strength; a pair with NaN stays undecided. All pairs of `models`
    are corrected for, so that a model on its way to an interval changes nothing. `num_votes` is the number of votes of
    the fit. Raises UnknownModelError, ValueError if `alpha` is not between 0 and 1.
    """
    position = {name: index for index, name in enumerate(models)}
    for name in order:
        if name not in position:
            raise UnknownModelError(name)
    listed = np.isin(np.arange(len(models)), [position[name] for name in order])
    decided = decided_pairs(strengths, covariance, listed, alpha=alpha)
    errors = _errors(covariance)
    num_pairs = len(models) * (len(models) - 1) // 2
    num_left = max(1, num_pairs - int(decided.sum()) // 2)

    def statement(above: str, below: str) -> Statement:
        i, j = position[above], position[below]
        gap, error = float(strengths[i] - strengths[j]), float(errors[i, j])
        if not (math.isfinite(gap) and math.isfinite(error)):
            return Statement(above, below, False, None, None, None)
        is_decided = bool(decided[i, j]) and gap > 0
        radius = _radius(error, num_pairs / alpha)
        lower = gap - radius
        return Statement(
            above,
            below,
            is_decided,
            POINTS * (max(0.0, lower) if is_decided else lower),
            POINTS * (gap + radius),
            None if is_decided else _votes_needed(gap, error, num_left / alpha, num_votes),
        )

    return tuple(statement(above, below) for above, below in pairwise(order))


def decided_pairs(
    strengths: FloatArray, covariance: FloatArray, listed: BoolArray | None = None, *, alpha: float = ALPHA
) -> BoolArray:
    """Symmetric matrix: whether the order of two models is decided, which is the order of their strengths.

    Holm's procedure on the e-values of all pairs: the k-th largest of m must reach (m - k + 1) / alpha, and so must all
    before it. At the first wrong decision one of the m0 pairs of equal models has reached m0 / alpha at least, which
    happens with probability alpha at most. Models that are not `listed` count in m and are never decided. Raises
    ValueError if `alpha` is not between 0 and 1.
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha is a probability between 0 and 1, not {alpha!r}")
    size = len(strengths)
    gaps, errors = strengths[:, None] - strengths[None, :], _errors(covariance)
    shrink = 1.0 / (1.0 + (errors / TYPICAL_GAP) ** 2)  # V / (V + eta): V = errors^-2, eta = TYPICAL_GAP^-2
    evidence = 0.5 * np.log1p(-shrink) + 0.5 * shrink * (gaps / errors) ** 2  # logarithms of the e-values
    known = np.isfinite(evidence) & ~np.eye(size, dtype=bool)
    if listed is not None:
        known &= listed[:, None] & listed[None, :]
    evidence = np.where(known, evidence, -np.inf)
    ordered = np.sort(evidence[np.triu_indices(size, 1)])[::-1]
    passed = ordered >= np.log(np.arange(len(ordered), 0, -1) / alpha)
    num_decided = len(ordered) if passed.all() else int(passed.argmin())
    decided: BoolArray = evidence >= (ordered[num_decided - 1] if num_decided else np.inf)
    return decided


def _errors(covariance: FloatArray) -> FloatArray:
    """Standard errors of the differences of all pairs, NaN without an interval."""
    variances = np.diag(covariance)
    errors: FloatArray = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - 2.0 * covariance, 1e-12))
    return errors


def _radius(error: float, limit: float) -> float:
    """Half of the width in which the e-value stays below `limit`, in log strength."""
    scale = (error / TYPICAL_GAP) ** 2
    return error * math.sqrt((1.0 + scale) * (2.0 * math.log(limit) + math.log1p(1.0 / scale)))


def _votes_needed(gap: float, error: float, limit: float, num_votes: int) -> int:
    """Votes until the radius is below the gap if information grows in proportion to the votes.

    The true gap is taken to be as large as the estimate and its error let expect, sqrt(gap^2 + error^2): an estimate of
    nearly zero does not mean that the models are equal.
    """
    expected = math.hypot(gap, error)
    low, high = 1.0, 2.0
    while _radius(error / math.sqrt(high), limit) >= expected:
        low, high = high, 2.0 * high
    for _ in range(20):
        growth = math.sqrt(low * high)
        low, high = (low, growth) if _radius(error / math.sqrt(growth), limit) < expected else (growth, high)
    return _two_digits(max(1, math.ceil((high - 1.0) * num_votes)))


def _two_digits(count: int) -> int:
    unit: int = 10 ** max(0, len(str(count)) - 2)
    return unit * math.ceil(count / unit)
