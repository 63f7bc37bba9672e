"""Pair counts: adding, removing, merging, storing, and matrices."""

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratings.errors import InvalidVoteError
from ratings.outcomes import OUTCOMES, PairCounts, Vote

pairs = st.lists(st.sampled_from("abcde"), min_size=2, max_size=2, unique=True)
votes = st.builds(
    lambda pair, outcome, weight: Vote(pair[0], pair[1], outcome, weight),
    pairs,
    st.sampled_from(OUTCOMES),
    st.integers(1, 5),
)
vote_lists = st.lists(votes, max_size=40)


@given(vote_lists, st.randoms(use_true_random=False))
def test_order_of_votes_changes_nothing(vote_list: list[Vote], rng: random.Random) -> None:
    shuffled = rng.sample(vote_list, len(vote_list))
    assert PairCounts.from_votes(vote_list) == PairCounts.from_votes(shuffled)


@given(vote_lists, vote_lists)
def test_merged_counts_equal_the_counts_of_all_votes(first: list[Vote], second: list[Vote]) -> None:
    merged = PairCounts.from_votes(first)
    merged.merge(PairCounts.from_votes(second))
    assert merged == PairCounts.from_votes(first + second)
    assert merged.num_votes == sum(vote.weight for vote in first + second)


@given(vote_lists)
def test_tally_holds_every_vote_once(vote_list: list[Vote]) -> None:
    counts = PairCounts.from_votes(vote_list)
    tally = counts.tally()
    assert tally.battles.sum() == 2 * counts.num_votes
    assert tally.scores.sum() == counts.num_votes
    for i, model in enumerate(tally.models):
        for j, other in enumerate(tally.models):
            assert counts.results(model, other) == (tally.wins[i, j], tally.wins[j, i], tally.draws[i, j])


@given(vote_lists)
def test_columns_give_the_same_counts_as_votes(vote_list: list[Vote]) -> None:
    rows = [("abcde".index(v.model_a), "abcde".index(v.model_b), OUTCOMES.index(v.outcome)) for v in vote_list]
    columns = np.array(rows, dtype=int).reshape(-1, 3).T
    singles = PairCounts.from_votes(Vote(v.model_a, v.model_b, v.outcome) for v in vote_list)
    assert PairCounts.from_arrays("abcde", *columns) == singles


def test_merging_counts_with_themselves_doubles_them() -> None:
    counts = PairCounts.from_votes([Vote("x", "y", "a"), Vote("y", "x", "tie")])
    counts.merge(counts)
    assert counts.num_votes == 4


def test_both_sides_of_a_pair_are_kept_apart() -> None:
    counts = PairCounts.from_votes([Vote("x", "y", "a"), Vote("y", "x", "a")])
    assert sorted(counts.cells()) == [("x", "y", "a", 1), ("y", "x", "a", 1)]
    assert counts.results("x", "y") == (1, 1, 0)


def test_flagged_votes_are_left_out() -> None:
    flagged = Vote("x", "y", "a", flags=frozenset({"identity_revealed"}))
    assert PairCounts.from_votes([flagged]).num_votes == 0


def test_outcomes_can_be_left_out_of_a_copy() -> None:
    counts = PairCounts.from_votes([Vote("x", "y", outcome) for outcome in OUTCOMES])
    assert counts.without("tie", "both_bad").num_votes == 2
    assert counts.num_votes == 4


@pytest.mark.parametrize(
    ("model_a", "model_b", "outcome", "weight"),
    [("x", "x", "a", 1), ("x", "y", "left", 1), ("x", "y", "a", 0), ("x", "y", "a", -1), ("x", "y", "a", 0.5)],
)
def test_what_cannot_be_a_vote_is_refused_and_changes_nothing(
    model_a: str, model_b: str, outcome: str, weight: int
) -> None:
    counts = PairCounts()
    with pytest.raises(InvalidVoteError):
        counts.add(model_a, model_b, outcome, weight)
    assert counts == PairCounts()
    assert counts.num_votes == 0


def test_columns_outside_the_list_of_models_are_refused() -> None:
    with pytest.raises(InvalidVoteError):
        PairCounts.from_arrays(["x", "y"], [0], [2], [0])


def test_memory_does_not_grow_with_the_number_of_votes() -> None:
    counts = PairCounts()
    counts.add("x", "y", "a")
    tracemalloc.start()
    for _ in range(50_000):
        counts.add("x", "y", "a")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000
