"""Online Elo: a rating that moves with each vote. Shown as an extra; it depends on the order of votes, so ranks come
from Bradley-Terry."""

import math
from collections.abc import Iterable, Mapping

from ratings.errors import InvalidVoteError
from ratings.outcomes import SCORES, Outcome, Vote

K_FACTOR = 4.0
INITIAL_RATING = 1000.0
SCALE = 400.0


class OnlineElo:
    """Current Elo ratings. Mutable: the fold of the vote log owns it."""

    def __init__(self, ratings: Mapping[str, float] | None = None, *, k_factor: float = K_FACTOR) -> None:
        self._ratings = dict(ratings or {})
        self._k_factor = k_factor

    @property
    def ratings(self) -> dict[str, float]:
        """A copy, best first."""
        return dict(sorted(self._ratings.items(), key=lambda item: (-item[1], item[0])))

    def add(self, model_a: str, model_b: str, outcome: Outcome | str) -> float:
        """Count one vote; returns the points that side a gained and side b lost."""
        if model_a == model_b:
            raise InvalidVoteError(f"{model_a!r} cannot meet itself")
        rating_a = self._ratings.setdefault(model_a, INITIAL_RATING)
        rating_b = self._ratings.setdefault(model_b, INITIAL_RATING)
        # Beyond ten scales the expectation is 0 or 1 to all digits; the bound keeps the power finite.
        gap = max(-10.0, min(10.0, (rating_b - rating_a) / SCALE))
        expected = 1.0 / (1.0 + math.pow(10.0, gap))
        gain = self._k_factor * (SCORES[Outcome(outcome)] - expected)
        self._ratings[model_a] += gain
        self._ratings[model_b] -= gain
        return gain


def online_elo(votes: Iterable[Vote], *, k_factor: float = K_FACTOR) -> dict[str, float]:
    """Elo ratings after all votes without flags, best first."""
    elo = OnlineElo(k_factor=k_factor)
    for vote in votes:
        if not vote.flags:
            for _ in range(vote.weight):
                elo.add(vote.model_a, vote.model_b, vote.outcome)
    return elo.ratings
