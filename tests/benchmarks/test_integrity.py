"""The gauntlet's log: votes reach the judge as a running arena's do, and what it finds leaves the ratings."""

import math

import numpy as np
import pytest

from benchmarks.integrity import voters
from benchmarks.integrity.__main__ import default_rules, median_interval
from benchmarks.integrity.arena_log import ArenaLog, Identity
from controller.votes.boards.vote_flags import flag_bits

NUM_MODELS = 10
TARGET = 6


def _log() -> ArenaLog:
    strengths = -np.linspace(0.0, 2.0, NUM_MODELS)
    log = ArenaLog(NUM_MODELS, np.random.default_rng(3))
    for number in range(1200):
        log.vote(Identity(f"honest-{number % 60}", f"home-{number % 60}"), voters.honest(strengths), day=number / 1200)
        if number % 30 == 0:
            log.vote(Identity("rigger-0", "lair"), voters.target_only(TARGET), day=number / 1200)
    return log


def test_a_rigger_is_flagged_and_lifts_the_target_only_without_rules() -> None:
    log = _log()
    log.judge(default_rules())
    columns = log.votes.columns
    is_rigged = log.is_by("rigger-")
    flagged = (columns["judged"] & flag_bits(("anomalous_voter",))) != 0
    everything, honest = (log.strengths(kept)[TARGET] for kept in (np.ones(len(flagged), np.bool_), ~is_rigged))

    assert is_rigged.sum() == 40
    np.testing.assert_array_equal(flagged, is_rigged)
    assert everything > honest + 0.2
    assert log.strengths(columns["judged"] == 0)[TARGET] == honest


def test_a_copy_of_a_log_goes_on_by_itself() -> None:
    log = _log()
    log.flush()
    copy = log.copy(seed=1)
    copy.vote(Identity("rigger-1", "lair"), voters.omnipresent(TARGET), day=1.0)
    copy.flush()

    assert (log.votes.num_votes, copy.votes.num_votes) == (1240, 1241)
    assert copy.is_by("rigger-1").sum() == 1


def test_omnipresent_votes_favour_the_target_and_hurt_its_rival() -> None:
    vote, rng = voters.omnipresent(TARGET), np.random.default_rng(0)

    assert [vote(rng, *pair) for pair in ((TARGET, 2), (2, TARGET), (TARGET - 1, 8), (1, 3))] == ["a", "b", "b", "b"]


@pytest.mark.parametrize(("num_values", "expected"), [(40, (13, 26)), (12, (2, 9)), (3, (0, 2))])
def test_the_interval_of_a_median_is_that_of_its_ranks(num_values: int, expected: tuple[int, int]) -> None:
    assert median_interval([float(value) for value in range(num_values)]) == expected


def test_the_interval_of_a_median_is_open_where_too_many_arenas_did_not_move() -> None:
    assert median_interval([5.0] * 6 + [math.inf] * 6) == (5.0, None)
