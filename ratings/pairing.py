"""Which two models meet next: probabilities of all pairs, and a draw from them.

Pure: the caller passes the models that can answer now, stores the probability with the battle and brings the random
generator. Probabilities of misordering come from a fit and are computed rarely; a table of one set of models is built
once; a draw from it takes microseconds. Ratings stay consistent under these distributions: every pair keeps a share.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from ratings.bradley_terry import expected_scores, laplacian, maximize
from ratings.outcomes import FloatArray, Tally

PairingMode = Literal["uniform", "active"]

FLOOR = 0.1  #: share of draws that is spread evenly over the pairs
#: No pair is drawn more often, or than twice its even share: a pair that is likely can be guessed, and which of two
#: copies of a model is better needs no votes. Simulated boards of ten need a few percent more votes than without it.
MAX_SHARE = 0.25
#: Errors of differences are taken so much wider: a statement that holds at any time (sequential.py) asks for about four
#: errors where a single look asks for two. Without it pairs between two and four errors hardly meet any more, and on
#: simulated boards of ten a third as many neighbours are told apart after 5,000 votes.
CAUTION = 2.0
PRIOR_SPREAD = 1.0  #: standard deviation of a strength before any vote, in log units: 174 points
UNKNOWN = 0.5  #: probability that the order of a pair is wrong if one of them was not in the fit

_erfc = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True, eq=False)
class Misordering:
    """`probability[i, j]`: that models i and j stand in the wrong order, as far as the votes say, with errors CAUTION
    times as wide. Symmetric, at most a half."""

    models: tuple[str, ...]
    probability: FloatArray

    def among(self, models: Sequence[str]) -> FloatArray:
        """The matrix over `models`, UNKNOWN where a model was not in the fit."""
        position = {name: index for index, name in enumerate(self.models)}
        places = np.array([position.get(model, len(position)) for model in models], dtype=np.int64)
        padded = np.pad(self.probability, (0, 1), constant_values=UNKNOWN)
        matrix: FloatArray = padded[np.ix_(places, places)]
        return matrix


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """Two models in the order of their sides, and the probability of this pair in either order."""

    model_a: str
    model_b: str
    probability: float


class PairTable:
    """Probabilities of all unordered pairs of some models. Immutable."""

    def __init__(
        self,
        models: Sequence[str],
        misordering: Misordering | None = None,
        *,
        floor: float = FLOOR,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """All pairs alike without `misordering`; with it in proportion to its probabilities up to MAX_SHARE, but the
        share `floor` of draws evenly. With `weights` of models, which are above 0, each pair is drawn in proportion to
        the product of both too, under the same limit. Raises ValueError for a floor outside 0 to 1, and for other
        weights."""
        if not 0.0 <= floor <= 1.0:
            raise ValueError(f"floor is a share between 0 and 1, not {floor!r}")
        if weights is not None and not all(0.0 < weight < math.inf for weight in weights.values()):
            raise ValueError("the weight of a model is above 0")
        self._models = tuple(dict.fromkeys(models))
        self._position = {model: index for index, model in enumerate(self._models)}
        first, second = np.triu_indices(len(self._models), 1)
        even = np.full(len(first), 1.0 / max(1, len(first)))
        shares = even
        if misordering is not None and len(first):
            wrong = misordering.among(self._models)[first, second]
            shares = (1.0 - floor) * (wrong / wrong.sum()) + floor * even
        if weights is not None and len(first) and len({*weights.values()}) > 1:
            of_model = np.array([weights[model] for model in self._models])
            shares = shares * of_model[first] * of_model[second]
            shares = shares / shares.sum()
        if shares is not even:
            shares = _limited(shares)
        self._pairs = list(zip(first.tolist(), second.tolist(), strict=True))
        self._probabilities: list[float] = shares.tolist()
        self._steps: list[float] = np.cumsum(shares).tolist()

    def probability(self, model: str, other: str) -> float:
        """How likely this pair is, in either order. Raises KeyError for a model that is not in the table, ValueError
        for a model against itself."""
        i, j = sorted((self._position[model], self._position[other]))
        if i == j:
            raise ValueError(f"{model!r} cannot meet itself")
        return self._probabilities[i * (2 * len(self._models) - i - 1) // 2 + j - i - 1]

    def draw(self, rng: Random) -> DrawnPair:
        """A pair, then its sides by a fair coin. Raises ValueError with fewer than two models."""
        if not self._steps:
            raise ValueError("no pair to draw")
        drawn = min(bisect_right(self._steps, rng.random() * self._steps[-1]), len(self._steps) - 1)
        first, second = (self._models[position] for position in self._pairs[drawn])
        sides = (first, second) if rng.random() < 0.5 else (second, first)
        return DrawnPair(*sides, self._probabilities[drawn])

    def draw_opponent(self, model: str, among: Sequence[str], rng: Random) -> str | None:
        """A model of `among` to meet `model`, in proportion to the probabilities of their pairs; None if there is none.
        Raises KeyError for models that are not in the table."""
        others = [other for other in among if other != model]
        shares = [self.probability(model, other) for other in others]
        return rng.choices(others, weights=shares)[0] if any(shares) else None


def misordering(tally: Tally) -> Misordering:
    """Probabilities after the votes of `tally`, if strengths were normally spread before them.

    The posterior is taken as normal around its maximum. Unlike the sandwich of the board it exists for every model,
    also for one that only won or has no vote, and a few votes that happen to agree do not make it narrow.
    """
    size = len(tally.models)
    precision = PRIOR_SPREAD**-2
    strengths = maximize(tally.scores, np.zeros(size), np.eye(size), ridge=precision)
    chance = expected_scores(strengths)
    curvature = laplacian(tally.battles * chance * (1.0 - chance)) + precision * np.eye(size)
    covariance = np.linalg.inv(curvature)
    first, second = np.triu_indices(size, 1)
    variances = np.diag(covariance)
    errors = np.sqrt(np.maximum(variances[first] + variances[second] - 2.0 * covariance[first, second], 1e-12))
    gaps = np.abs(strengths[first] - strengths[second]) / (CAUTION * errors)
    probability = np.zeros((size, size))
    probability[first, second] = 0.5 * _erfc(np.minimum(gaps, 30.0) / math.sqrt(2.0)).astype(np.float64)
    return Misordering(tally.models, probability + probability.T)


def _limited(shares: FloatArray) -> FloatArray:
    """The shares with none above the limit; what is cut off goes to the others in proportion."""
    limit = min(1.0, max(MAX_SHARE, 2.0 / len(shares)))
    limited, is_cut = shares, np.zeros(len(shares), dtype=bool)
    while (limited[~is_cut] > limit).any():
        is_cut |= limited > limit
        rest = (1.0 - limit * is_cut.sum()) / shares[~is_cut].sum()
        limited = np.where(is_cut, limit, rest * shares)
    return limited
