"""Votes drawn from known strengths, as pair counts: ten million cost as little as a thousand."""

from itertools import combinations

import numpy as np

from ratings.outcomes import FloatArray, PairCounts

SPREAD = 0.7  #: standard deviation of true strengths in log units, 122 rating points


def names_of(num_models: int) -> tuple[str, ...]:
    """Names that sort like their numbers."""
    return tuple(f"m{index:03}" for index in range(num_models))


def draw_counts(
    strengths: FloatArray, votes_per_pair: int, rng: np.random.Generator, *, tie_width: float = 0.0
) -> PairCounts:
    """Votes of all pairs, by the Rao-Kupper model; without a width of ties that of Bradley and Terry."""
    counts, names = PairCounts(), names_of(len(strengths))
    for i, j in combinations(range(len(strengths)), 2):
        add_pair(counts, names[i], names[j], strengths[i] - strengths[j], votes_per_pair, rng, tie_width=tie_width)
    return counts


def add_pair(
    counts: PairCounts,
    first: str,
    second: str,
    gap: float,
    num_votes: int,
    rng: np.random.Generator,
    *,
    tie_width: float = 0.0,
) -> None:
    """Add votes of one pair whose first model is `gap` ahead; either model stands on side a in half of them."""
    won, lost = (1.0 / (1.0 + np.exp(tie_width - side)) for side in (gap, -gap))
    on_side_a = int(rng.binomial(num_votes, 0.5))
    for a, b, number, of_a, of_b in (
        (first, second, on_side_a, won, lost),
        (second, first, num_votes - on_side_a, lost, won),
    ):
        drawn = rng.multinomial(number, [of_a, of_b, max(0.0, 1.0 - of_a - of_b)])
        for outcome, count in zip(("a", "b", "tie"), drawn.tolist(), strict=True):
            if count:
                counts.add(a, b, outcome, count)
