"""Simulated arenas of the pairing benchmarks: their votes follow the strengths and the shares of the pairs."""

import numpy as np
import pytest

from benchmarks.ratings.arenas import Arena, Mode, one_look, strengths_of
from ratings.pairing import MAX_SHARE


@pytest.mark.parametrize("mode", ["uniform", "win_rate_error", "active"])
def test_votes_are_counted_once_and_follow_the_model(mode: Mode) -> None:
    arena = Arena(strengths_of((200, 10, 200, 100)), np.random.default_rng(2), ties=0.3, mode=mode)
    for _ in range(40):
        arena.vote(100)
    tally = arena.tally

    assert tally.battles.sum() / 2 == arena.num_votes == 4000
    assert arena.shares.sum() == pytest.approx(1.0)
    assert tally.draws[1, 2] / tally.battles[1, 2] == pytest.approx(0.3, abs=0.06)  # nearly equal
    assert one_look(arena.fit())[0, 3]
    if mode == "uniform":
        assert np.ptp(arena.shares) == 0
    else:
        assert arena.shares.max() > 0.1


def test_active_arenas_ask_for_the_close_pair() -> None:
    arena = Arena(strengths_of((200, 10, 200, 100)), np.random.default_rng(2))
    for _ in range(40):
        arena.vote(100)

    assert arena.shares.argmax() == 4  # pairs in order: 01 02 03 04 12
    assert arena.shares.max() == pytest.approx(MAX_SHARE)
