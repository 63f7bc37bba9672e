"""Votes to overtake, checked by adding exactly so many votes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratings.bradley_terry import fit_bradley_terry
from ratings.influence import votes_to_overtake
from ratings.outcomes import PairCounts

numbers = st.integers(1, 12)


def gap_after(counts: PairCounts, leader: str, follower: str, extra: int) -> float:
    more = PairCounts()
    more.merge(counts)
    if extra:
        more.add(follower, leader, "a", extra)
    fit = fit_bradley_terry(more)
    return float(fit.strengths[fit.models.index(leader)] - fit.strengths[fit.models.index(follower)])


@given(st.lists(numbers, min_size=12, max_size=12))
def test_exactly_so_many_votes_are_needed(results: list[int]) -> None:
    counts = PairCounts()
    numbers_left = iter(results)
    for first, second in [("A", "B"), ("A", "C"), ("A", "D"), ("B", "C"), ("B", "D"), ("C", "D")]:
        counts.add(first, second, "a", next(numbers_left))
        counts.add(first, second, "b", next(numbers_left))
    fit = fit_bradley_terry(counts)
    order = sorted(fit.models, key=lambda model: -fit.strengths[fit.models.index(model)])
    for leader, follower in [(order[0], order[1]), (order[0], order[3]), (order[2], order[3])]:
        needed = votes_to_overtake(fit, leader, follower)
        assert gap_after(counts, leader, follower, needed) < 1e-7
        assert gap_after(counts, leader, follower, needed - 1) > -1e-7


def test_two_models_need_the_difference_of_their_wins(count_results: Callable[..., PairCounts]) -> None:
    fit = fit_bradley_terry(count_results(("A", "B", 60, 40)))
    assert votes_to_overtake(fit, "A", "B") == 21


def test_one_vote_breaks_a_tie(count_results: Callable[..., PairCounts]) -> None:
    fit = fit_bradley_terry(count_results(("A", "B", 5, 5)))
    assert votes_to_overtake(fit, "A", "B") == 1


def test_models_outside_the_core_cannot_be_asked_about(count_results: Callable[..., PairCounts]) -> None:
    fit = fit_bradley_terry(count_results(("A", "B", 20, 0), ("B", "C", 6, 5)))
    with pytest.raises(AssertionError):
        votes_to_overtake(fit, "A", "B")
