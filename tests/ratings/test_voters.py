"""The test of voters: whom it finds, and whom it leaves alone."""

from collections.abc import Callable

import numpy as np
import pytest

from ratings.voters import SURPRISE_LIMIT, Ballots, Crowd, Surprise, blocks_of
from tests.ratings.integrity_crowd import (
    NUM_MODELS,
    Cast,
    careless,
    crowd_of,
    honest,
    omnipresent,
    strengths,
    target_only,
)

Rng = np.random.Generator
Kind = Callable[[Rng, np.ndarray], Cast]


def _surprises(seed: int, kind: Kind, *, number: int, base: int = 150) -> list[Surprise]:
    """The test of `number` voters of a kind among `base` honest voters with 20 votes each."""
    rng = np.random.default_rng(seed)
    true = strengths(rng)
    casts = [honest(rng, true, 20) for _ in range(base)] + [kind(rng, true) for _ in range(number)]
    crowd, ballots, voters = crowd_of(rng, casts)
    return [crowd.surprise(ballots.taken(voters == base + n)) for n in range(number)]


def _share_found(kind: Kind, *, number: int, seeds: int = 5) -> float:
    found = [
        surprise.peak > SURPRISE_LIMIT for seed in range(seeds) for surprise in _surprises(seed, kind, number=number)
    ]
    return sum(found) / len(found)


@pytest.mark.parametrize("num_votes", [50, 300])
def test_honest_voters_are_left_alone_however_many_votes_they_cast(num_votes: int) -> None:
    """With a probability per pair instead of a fit, a third of honest voters with 300 votes passed the old limit."""
    assert _share_found(lambda rng, true: honest(rng, true, num_votes), number=40) <= 0.01


def test_voters_who_never_tie_are_no_riggers() -> None:
    assert _share_found(lambda rng, true: honest(rng, true, 300, tie=1.001), number=20) <= 0.01


def test_voters_with_a_taste_of_their_own_are_no_riggers() -> None:
    def kind(rng: Rng, true: np.ndarray) -> Cast:
        return honest(rng, true + rng.normal(0, 0.3, NUM_MODELS), 100)

    assert _share_found(kind, number=20) <= 0.01


def test_omnipresent_riggers_are_found() -> None:
    assert _share_found(lambda rng, true: omnipresent(rng, true, 100, 4), number=4) >= 0.95


def test_riggers_who_vote_only_for_their_target_are_found() -> None:
    def kind(rng: Rng, true: np.ndarray) -> Cast:
        return target_only(rng, 100, int(rng.integers(NUM_MODELS)))

    assert _share_found(kind, number=4) >= 0.6
    [surprise] = _surprises(0, lambda rng, true: target_only(rng, 30, 3), number=1)
    assert (surprise.alternative, surprise.target) == ("pick_boost", 3)


def test_careless_voters_are_found_in_time() -> None:
    assert _share_found(lambda rng, true: careless(rng, 300), number=4) >= 0.6


def test_a_voter_who_always_takes_the_same_side_is_found() -> None:
    def first(rng: Rng, true: np.ndarray) -> Cast:
        cast = honest(rng, true, 60)
        return Cast(cast.a, cast.b, np.ones_like(cast.outcome))

    assert {surprise.alternative for surprise in _surprises(1, first, number=3)} == {"first"}


def test_own_votes_are_no_evidence_for_themselves() -> None:
    """A flood of votes would otherwise move the fit that it is tested against."""
    rng = np.random.default_rng(3)
    true = strengths(rng)
    casts = [honest(rng, true, 20) for _ in range(100)] + [omnipresent(rng, true, 4000, 2)]
    crowd, ballots, voters = crowd_of(rng, casts)
    inside = crowd.surprise(ballots.taken(voters == 100))
    assert inside.peak > SURPRISE_LIMIT
    others, own = ballots.taken(voters != 100), ballots.taken(voters == 100)
    crowd = Crowd(others, NUM_MODELS)
    own = Ballots(own.a, own.b, own.a_won, np.minimum(own.block, others.block.max()))
    assert crowd.surprise(own, inside=own.taken(np.arange(0))).peak > SURPRISE_LIMIT


def test_the_only_voter_of_an_arena_is_not_judged() -> None:
    ballots = Ballots(np.full(80, 0), np.full(80, 1), np.ones(80, dtype=bool), np.zeros(80, dtype=np.int64))
    crowd = Crowd(ballots, 2)
    assert crowd.surprise(ballots).peak == 1
    assert crowd.surprise(ballots.taken(np.zeros(80, dtype=bool))).peak == 1


def test_a_model_that_came_today_makes_no_rigger_of_its_first_voter() -> None:
    """Others voted yesterday, without it; pairing shows a newcomer more often."""
    rng = np.random.default_rng(7)
    true = strengths(rng)
    base = [honest(rng, true, 20) for _ in range(150)]
    _, others, _ = crowd_of(rng, base)
    old = ~((others.a == 0) | (others.b == 0))
    others = others.taken(old)
    own = honest(rng, true, 2000)
    of_newcomer = np.flatnonzero(((own.a == 0) | (own.b == 0)) & (own.outcome != 0))[:100]
    days = np.repeat([0, 1], [len(others), len(of_newcomer)])
    a = np.concatenate([others.a, own.a[of_newcomer]])
    b = np.concatenate([others.b, own.b[of_newcomer]])
    a_won = np.concatenate([others.a_won, own.outcome[of_newcomer] > 0])
    ballots = Ballots(a, b, a_won, blocks_of(days, NUM_MODELS))
    assert Crowd(ballots, NUM_MODELS).surprise(ballots.taken(days == 1)).peak < SURPRISE_LIMIT


def test_blocks_end_with_the_day_and_with_their_size() -> None:
    assert blocks_of(np.array([3, 3, 4, 4, 3]), 2).tolist() == [0, 0, 1, 1, 2]
    assert blocks_of(np.zeros(40, dtype=np.int64), 2).tolist() == [0] * 16 + [1] * 16 + [2] * 8


def test_the_order_of_the_log_decides_and_what_came_after_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    true = strengths(rng)
    base = [honest(rng, true, 20) for _ in range(150)]
    crowd, _, _ = crowd_of(rng, base)
    bad, good = omnipresent(rng, true, 60, 1), honest(rng, true, 600, tie=1.001)
    columns = [np.concatenate([getattr(cast, name) for cast in (bad, good)]) for name in ("a", "b", "outcome")]
    a, b, outcome = (column[columns[2] != 0] for column in columns)
    votes = Ballots(a, b, outcome > 0, np.zeros(len(a), dtype=np.int64))
    nothing = votes.taken(np.arange(0))
    alone = crowd.surprise(votes.taken(np.arange(60)), inside=nothing)
    assert alone.peak > SURPRISE_LIMIT
    assert crowd.surprise(votes, inside=nothing).peak >= alone.peak * 0.999
