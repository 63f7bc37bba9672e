"""Which two models meet next: probabilities of all pairs, and a draw from them.

Pure functions: the caller passes the models that can answer now, stores the probability with the battle and brings
the random generator. Ratings fitted later stay consistent under any of these distributions, because every pair keeps
a share.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Literal

from ratings.outcomes import PairCounts

PairingMode = Literal["uniform", "weighted", "active"]

ACTIVE_FLOOR = 0.1  #: share of draws in active mode that is spread evenly over the pairs


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """Two models in the order of their sides, and the probability of this pair in either order."""

    model_a: str
    model_b: str
    probability: float


def pair_probabilities(
    models: Iterable[str],
    counts: PairCounts | None = None,
    *,
    mode: PairingMode = "uniform",
    weights: Mapping[str, float] | None = None,
    floor: float = ACTIVE_FLOOR,
) -> dict[tuple[str, str], float]:
    """Probability of each unordered pair, keyed in the order of `models`; empty with fewer than two models.

    "weighted": proportional to the product of both weights, a missing weight being 1; a model of weight 0 is never
    drawn. "active": proportional to what one more vote takes off the standard error of the pair's win rate (Chatbot
    Arena paper, eq. 9), times the weights if there are any; the share `floor` of draws is spread evenly over the
    pairs.
    """
    if mode not in ("uniform", "weighted", "active"):
        raise ValueError(f"unknown mode {mode!r}")
    if not 0.0 <= floor <= 1.0:
        raise ValueError(f"floor is a share between 0 and 1, not {floor!r}")
    pairs = list(combinations(dict.fromkeys(models), 2))
    if mode == "uniform":
        return {pair: 1.0 / len(pairs) for pair in pairs}
    shares = _shares({pair: _weight(pair, weights or {}) for pair in pairs})
    if mode == "weighted" or not shares:
        return shares
    history = PairCounts() if counts is None else counts
    active = _shares({pair: share * expected_gain(*history.results(*pair)) for pair, share in shares.items()})
    open_pairs = [pair for pair, share in shares.items() if share > 0]
    even = floor / len(open_pairs)
    return {pair: (1.0 - floor) * active[pair] + (even if shares[pair] > 0 else 0.0) for pair in shares}


def draw_pair(probabilities: Mapping[tuple[str, str], float], rng: Random) -> DrawnPair:
    """Draw a pair, then its sides by a fair coin. Raises ValueError when there is no pair to draw."""
    if not any(probabilities.values()):
        raise ValueError("no pair to draw")
    pair = rng.choices(list(probabilities), weights=list(probabilities.values()))[0]
    model_a, model_b = pair if rng.random() < 0.5 else pair[::-1]
    return DrawnPair(model_a, model_b, probabilities[pair])


def expected_gain(wins: int, losses: int, draws: int) -> float:
    """sqrt(var / n) - sqrt(var / (n + 1)), var being the variance of one vote's score.

    One imagined win for each side keeps the variance above zero for a pair that has agreed so far, and a pair that
    never met counts as half a vote: it comes before every pair that has met.
    """
    n = wins + losses + draws
    mean = (wins + 1 + 0.5 * draws) / (n + 2)
    variance = (wins + 1 + 0.25 * draws) / (n + 2) - mean**2
    seen = max(n, 0.5)
    return math.sqrt(variance / seen) - math.sqrt(variance / (seen + 1))


def _weight(pair: tuple[str, str], weights: Mapping[str, float]) -> float:
    first, second = (weights.get(model, 1.0) for model in pair)
    if not (math.isfinite(first) and math.isfinite(second) and first >= 0 and second >= 0):
        raise ValueError(f"the weights of {pair} must be finite and not negative")
    return first * second


def _shares(values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    total = sum(values.values())
    return {pair: value / total for pair, value in values.items()} if total > 0 else {}
