"""Logs of simulated voters (tests/ratings/integrity_crowd.py)."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tests.ratings.integrity_crowd import Cast
from wire.votes import VotedSide, VoteRecord

OUTCOMES = {1: "a", -1: "b", 0: "tie"}


def honest_names(casts: Sequence[Cast]) -> list[dict[str, Any]]:
    """Fields of voters that are named honest-0, honest-1, ..."""
    return [{"voter": f"honest-{number}"} for number in range(len(casts))]


def shuffled_log(
    rng: np.random.Generator, casts: Sequence[Cast], fields: Iterable[dict[str, Any]], *, per_day: int = 1000
) -> list[VoteRecord]:
    """The votes of all voters in random order; `fields` are those of each voter's votes. `per_day` votes have the time
    of one day."""
    votes = [
        (int(a), int(b), OUTCOMES[int(outcome)], own)
        for cast, own in zip(casts, fields, strict=True)
        for a, b, outcome in zip(cast.a, cast.b, cast.outcome, strict=True)
    ]
    return [
        vote(number, *votes[position][:3], time=float(number // per_day * 86_400), **votes[position][3])
        for number, position in enumerate(rng.permutation(len(votes)).tolist(), start=1)
    ]


def vote(number: int, a: int, b: int, outcome: str, **changes: Any) -> VoteRecord:
    """A rated vote with the id `number`-0 on the models a and b."""
    values: dict[str, Any] = {
        "vote_id": f"{number}-0",
        "battle_id": f"battle-{number}",
        "time": 0.0,
        "mode": "anonymous",
        "outcome": outcome,
        "a": VotedSide(model=f"m{a}", revision="r"),
        "b": VotedSide(model=f"m{b}", revision="r"),
    }
    return VoteRecord(**{**values, **changes})
