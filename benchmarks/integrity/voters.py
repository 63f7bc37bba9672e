"""Voters of the gauntlet: honest ones, and those who do not say what they think. A voter is a function from the pair
that was drawn to an outcome; None closes the battle without a vote.

Models are positions, the best first. Riggers know which model wrote which answer, and the order of the models.
"""

from collections.abc import Callable

import numpy as np

from ratings.outcomes import FloatArray, Outcome

TIE = 1.8  #: Rao and Kupper's threshold: 29 % of even matches are ties

Voter = Callable[[np.random.Generator, int, int], Outcome | None]


def honest(strengths: FloatArray) -> Voter:
    """Bradley-Terry with ties."""

    def vote(rng: np.random.Generator, a: int, b: int) -> Outcome:
        odds = float(np.exp(strengths[a] - strengths[b]))
        draw = rng.random()
        for_a, for_b = odds / (odds + TIE), 1 / (1 + TIE * odds)
        return Outcome.A if draw < for_a else Outcome.B if draw < for_a + for_b else Outcome.TIE

    return vote


def careless(rng: np.random.Generator, a: int, b: int) -> Outcome:
    """Reads nothing."""
    return (Outcome.A, Outcome.B, Outcome.TIE)[int(rng.choice(3, p=(0.35, 0.35, 0.3)))]


def target_only(target: int) -> Voter:
    """Votes for the target and in no other battle."""
    return lambda rng, a, b: _wins(target, a) if target in (a, b) else None


def boosting(target: int, strengths: FloatArray) -> Voter:
    """Votes for the target, and honestly in all other battles."""
    elsewhere = honest(strengths)
    return lambda rng, a, b: _wins(target, a) if target in (a, b) else elsewhere(rng, a, b)


def omnipresent(target: int) -> Voter:
    """Votes in every battle so that the target rises (arXiv 2501.17858): for the target, against its rival, the next
    model above, and elsewhere against the better model."""

    def vote(rng: np.random.Generator, a: int, b: int) -> Outcome:
        rival = target - 1
        if target in (a, b):
            return _wins(target, a)
        loser = rival if rival in (a, b) else min(a, b)
        return Outcome.B if loser == a else Outcome.A

    return vote


def _wins(model: int, a: int) -> Outcome:
    return Outcome.A if model == a else Outcome.B
