"""Caps by day, and groups of voters that are judged as one."""

import numpy as np

from ratings.caps import UNKNOWN, beyond_cap
from ratings.cohorts import MIN_VOTERS, judge_group
from tests.ratings.integrity_crowd import Cast, crowd_of, honest, strengths, target_only


def test_the_first_votes_of_a_day_count() -> None:
    keys = np.array([7, 8, 7, 7, 8, 7, 7])
    days = np.array([1, 1, 1, 1, 1, 2, 2])
    assert np.flatnonzero(beyond_cap(keys, days, 2)).tolist() == [3]
    assert np.flatnonzero(beyond_cap(keys, days, 1)).tolist() == [2, 3, 4, 6]


def test_votes_without_a_key_and_a_cap_of_zero_are_unlimited() -> None:
    days = np.zeros(4, dtype=np.int64)
    assert not beyond_cap(np.full(4, UNKNOWN), days, 1).any()
    assert not beyond_cap(np.full(4, 3), days, 0).any()
    assert not beyond_cap(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 1).any()


def test_the_order_of_days_in_the_log_does_not_matter() -> None:
    """An import has older days than the votes before it."""
    keys, days = np.array([1, 1, 1, 1]), np.array([5, 4, 5, 4])
    assert np.flatnonzero(beyond_cap(keys, days, 1)).tolist() == [2, 3]


def _group(seed: int, members: list[Cast]) -> tuple[float, bool]:
    rng = np.random.default_rng(seed)
    true = strengths(rng)
    casts = [honest(rng, true, 20) for _ in range(150)] + members
    crowd, ballots, voters = crowd_of(rng, casts)
    rows = voters >= 150
    verdict = judge_group(crowd, ballots.taken(rows), voters[rows])
    return verdict.weakest, verdict.is_anomalous()


def test_identities_of_one_rigger_are_found_together() -> None:
    rng = np.random.default_rng(1)
    members = [target_only(rng, 5, 3) for _ in range(12)]
    alone = crowd_of(np.random.default_rng(2), [honest(rng, strengths(rng), 20) for _ in range(150)] + members[:1])
    assert alone[0].surprise(alone[1].taken(alone[2] == 150)).peak < 1000  # each one has too few votes
    assert _group(1, members)[1]


def test_an_honest_group_is_left_alone_and_one_rigger_in_it_does_not_condemn_it() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        true = strengths(np.random.default_rng(seed))
        members = [honest(rng, true, 20) for _ in range(10)]
        assert not _group(seed, members)[1]
        assert not _group(seed, [*members[: MIN_VOTERS - 1], target_only(rng, 100, 2)])[1]
