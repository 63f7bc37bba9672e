"""Statements about neighbours: wrong at any time with the stated probability at most; a forecast that comes true."""

import math

import numpy as np
import pytest

from ratings.bradley_terry import NORMAL_975, POINTS, fit_bradley_terry
from ratings.errors import UnknownModelError
from ratings.outcomes import PairCounts
from ratings.sequential import ALPHA, TYPICAL_GAP, Statement, neighbour_statements


def _pair(gap: float, error: float, num_votes: int = 1000) -> Statement:
    """The statement about two models with this gap and standard error, in log strength."""
    covariance = np.diag([error**2 / 2, error**2 / 2])
    (statement,) = neighbour_statements("ab", "ab", np.array([gap, 0.0]), covariance, num_votes)
    return statement


def _boundary(error: float) -> float:
    """Smallest gap that is decided for a single pair: 1 / alpha = e-value of the normal mixture."""
    v, eta = error**-2, TYPICAL_GAP**-2
    return math.sqrt((v + eta) * math.log((v + eta) / eta / ALPHA**2)) / v


@pytest.mark.parametrize("error", [0.3, 0.05, 0.004])
def test_a_pair_is_decided_from_the_boundary_of_the_published_sequence_on(error: float) -> None:
    gap = _boundary(error)

    assert not _pair(gap * 0.999, error).is_decided
    decided = _pair(gap * 1.001, error)
    assert decided.is_decided
    assert decided.votes_needed is None
    assert decided.lower == pytest.approx(0.001 * gap * POINTS)
    assert decided.upper == pytest.approx(2.001 * gap * POINTS)
    assert gap > NORMAL_975 * error  # later than for a single look


def test_equal_models_are_not_told_apart_by_looking_often() -> None:
    rng = np.random.default_rng(5)
    fooled_by_interval = fooled_by_statement = 0
    for _ in range(200):
        scores = np.cumsum(rng.integers(0, 2, 2000))
        for n in range(50, 2001, 50):
            share = scores[n - 1] / n
            gap, error = math.log(share / (1 - share)), 1 / math.sqrt(n * share * (1 - share))
            if abs(gap) > NORMAL_975 * error:
                fooled_by_interval += 1
                break
        for n in range(50, 2001, 50):
            share = scores[n - 1] / n
            gap, error = math.log(share / (1 - share)), 1 / math.sqrt(n * share * (1 - share))
            if _pair(abs(gap), error).is_decided:
                fooled_by_statement += 1
                break

    assert fooled_by_interval / 200 > 0.25
    assert fooled_by_statement / 200 <= 0.05


def test_the_more_models_the_more_evidence_a_pair_needs() -> None:
    gap = _boundary(0.05) * 1.001

    def decided(num_models: int) -> bool:
        names = [str(index) for index in range(num_models)]
        strengths = np.array([gap, *np.zeros(num_models - 1)])
        return neighbour_statements(names, names, strengths, np.eye(num_models) * 0.05**2 / 2, 100)[0].is_decided

    assert decided(2)
    assert not decided(3)


def test_a_decided_pair_lightens_the_correction_for_the_rest() -> None:
    error, covariance = 0.05, np.eye(3) * 0.05**2 / 2
    v, eta = error**-2, TYPICAL_GAP**-2
    alone, of_three = (math.sqrt((v + eta) * math.log((v + eta) / eta / (ALPHA / m) ** 2)) / v for m in (1, 3))
    gap = 0.5 * (alone + of_three)  # enough if it is the last of the three pairs, too little as one of three

    def decided(first: float) -> tuple[bool, ...]:
        strengths = np.array([first + gap, gap, 0.0])
        return tuple(s.is_decided for s in neighbour_statements("abc", "abc", strengths, covariance, 100))

    assert decided(0.0) == (False, False)
    assert decided(10.0) == (True, True)


def test_a_row_without_statement_is_corrected_for_and_decides_nothing() -> None:
    strengths, covariance = np.array([0.5, 0.0, 9.0]), np.eye(3) * 1e-4
    (statement,) = neighbour_statements("ab", "abc", strengths, covariance, 100)
    (of_pair,) = neighbour_statements("ab", "ab", strengths[:2], covariance[:2, :2], 100)

    assert statement.lower is not None
    assert of_pair.lower is not None
    assert statement.lower < of_pair.lower


def test_a_pair_without_an_interval_is_undecided() -> None:
    covariance = np.diag([0.01, 0.01, math.nan])
    first, second = neighbour_statements("abc", "abc", np.array([9.0, 0.0, -9.0]), covariance, 100)

    assert first.is_decided
    assert second == Statement("b", "c", False, None, None, None)


@pytest.mark.parametrize("gap", [0.1, 0.03])
def test_so_many_more_votes_decide_if_the_gap_is_as_large_as_may_be_expected(gap: float) -> None:
    error, num_votes = 0.06, 1000
    needed = _pair(gap, error, num_votes).votes_needed

    assert needed is not None
    expected = math.hypot(gap, error)
    after = [error * math.sqrt(num_votes / (num_votes + share * needed)) for share in (1.0, 0.9)]
    assert _pair(expected, after[0]).is_decided
    assert not _pair(expected, after[1]).is_decided
    assert needed % 100 == 0  # two digits of a number in the thousands


def test_equal_ratings_are_not_expected_to_stay_equal() -> None:
    equal, apart = (_pair(gap, 0.1).votes_needed for gap in (0.0, 0.1))

    assert equal is not None
    assert apart is not None
    assert apart < equal < 3 * apart


def test_statements_follow_a_fit_of_votes() -> None:
    counts = PairCounts()
    for first, second, won, lost in (("a", "b", 900, 300), ("b", "c", 310, 300), ("a", "c", 900, 310)):
        counts.add(first, second, "a", won)
        counts.add(first, second, "b", lost)
    fit = fit_bradley_terry(counts)

    top, bottom = neighbour_statements("abc", fit.models, fit.strengths, fit.covariance, counts.num_votes)

    assert (top.above, top.below, top.is_decided) == ("a", "b", True)
    assert (bottom.above, bottom.below, bottom.is_decided) == ("b", "c", False)
    assert bottom.votes_needed is not None
    assert bottom.votes_needed > 0
    assert fit.ratings[0] - fit.ratings[1] == pytest.approx((top.lower + top.upper) / 2)  # type: ignore[operator]


def test_fewer_than_two_rows_have_no_neighbours() -> None:
    assert neighbour_statements([], [], np.zeros(0), np.zeros((0, 0)), 0) == ()
    assert neighbour_statements("a", "ab", np.zeros(2), np.eye(2), 1) == ()


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(UnknownModelError):
        neighbour_statements("ax", "ab", np.zeros(2), np.eye(2), 1)
    with pytest.raises(ValueError, match="alpha"):
        neighbour_statements("ab", "ab", np.zeros(2), np.eye(2), 1, alpha=5)
