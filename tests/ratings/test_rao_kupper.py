"""Ties with a probability of their own: recovered strengths, the scale, and votes without ties."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from ratings.bradley_terry import POINTS, fit_bradley_terry
from ratings.options import FitOptions
from ratings.outcomes import PairCounts, Vote
from ratings.ranking import rank_board
from ratings.rao_kupper import fit_rao_kupper
from ratings.style import VoteColumns

MODELS = ("m0", "m1", "m2", "m3")
STRENGTHS = np.array([0.9, 0.2, -0.3, -0.8])
WIDTH = 0.7
OPPOSITE = {"a": "b", "b": "a", "tie": "tie"}


def expected_counts(num_votes: int) -> PairCounts:
    """Every ordered pair with the counts that the model expects, rounded."""
    counts = PairCounts()
    for i, first in enumerate(MODELS):
        for j, second in enumerate(MODELS):
            if i != j:
                gap = STRENGTHS[i] - STRENGTHS[j]
                won, lost = (1 / (1 + math.exp(WIDTH - side)) for side in (gap, -gap))
                for outcome, share in (("a", won), ("b", lost), ("tie", 1 - won - lost)):
                    counts.add(first, second, outcome, round(num_votes * share))
    return counts


def test_strengths_and_width_of_ties_are_found() -> None:
    fit = fit_rao_kupper(expected_counts(100_000))
    assert fit.strengths == pytest.approx(STRENGTHS - STRENGTHS.mean(), abs=1e-4)
    assert fit.tie_width == pytest.approx(WIDTH, abs=1e-4)


def test_half_wins_shrink_the_scale() -> None:
    counts = expected_counts(10_000)
    half_wins, with_ties = fit_bradley_terry(counts), fit_rao_kupper(counts)
    assert np.ptp(half_wins.strengths) < 0.9 * np.ptp(with_ties.strengths)
    # Both expect the same points, up to what half wins cannot fit.
    assert half_wins.predicted == pytest.approx(with_ties.predicted, abs=0.02)


def test_intervals_are_as_wide_as_the_votes_scatter() -> None:
    """Standard errors against those of 300 drawn arenas."""
    rng = np.random.default_rng(3)
    expected = expected_counts(100)
    cells: dict[tuple[str, str], list[float]] = {}
    for first, second, outcome, count in expected.cells():
        cells.setdefault((first, second), [0, 0, 0])[("a", "b", "tie").index(outcome.value)] = count
    drawn = []
    for _ in range(300):
        counts = PairCounts()
        for (first, second), numbers in cells.items():
            total = int(sum(numbers))
            for name, count in zip(("a", "b", "tie"), rng.multinomial(total, np.divide(numbers, total)), strict=True):
                if count:
                    counts.add(first, second, name, int(count))
        drawn.append(fit_rao_kupper(counts).strengths)
    errors = np.sqrt(np.diag(fit_rao_kupper(expected).covariance))
    assert np.std(drawn, axis=0) == pytest.approx(errors, rel=0.12)


def test_without_ties_it_is_the_bradley_terry_fit(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 30, 20), ("B", "C", 25, 20), ("A", "C", 12, 14))
    plain, with_ties = fit_bradley_terry(counts), fit_rao_kupper(counts)
    assert with_ties.strengths == pytest.approx(plain.strengths, abs=1e-7)
    assert with_ties.covariance == pytest.approx(plain.covariance, abs=1e-9)
    assert with_ties.tie_width == 0


def test_the_order_of_sides_changes_nothing() -> None:
    counts, swapped = expected_counts(50), PairCounts()
    for first, second, outcome, count in counts.cells():
        swapped.add(second, first, OPPOSITE[outcome.value], count)
    assert fit_rao_kupper(swapped).strengths == pytest.approx(fit_rao_kupper(counts).strengths, abs=1e-9)


def test_a_better_model_that_never_lost_but_tied_stays_finite(count_results: Callable[..., PairCounts]) -> None:
    fit = fit_rao_kupper(count_results(("A", "B", 20, 0, 10)))
    assert 0 < fit.strengths[0] < 10
    assert 0 < fit.tie_width < 20


def test_the_board_tells_how_far_ahead_wins_half_of_the_votes() -> None:
    board = rank_board(expected_counts(1000), None, FitOptions(fit="rao_kupper"))
    assert board.tie_points == pytest.approx(POINTS * WIDTH, abs=1)
    assert rank_board(expected_counts(10), None, FitOptions()).tie_points is None


@pytest.mark.parametrize(("ties", "points"), [(0, 0.0), (40, None)], ids=["no ties", "only ties"])
def test_the_width_of_ties_of_an_extreme_board(
    count_results: Callable[..., PairCounts], ties: int, points: float | None
) -> None:
    wins = 0 if ties else 40
    board = rank_board(count_results(("A", "B", wins, wins, ties)), None, FitOptions(fit="rao_kupper"))
    assert board.tie_points == points
    assert [row.rating for row in board.rows] == pytest.approx([1000, 1000])


def test_a_feature_that_explains_every_win_stays_finite() -> None:
    """All wins are those of one pair at one style, beside many ties: the likelihood climbs for ever, ever less."""
    rows = [
        ("c", "f", "tie", 6357, -0.75, 0.89),
        ("e", "f", "tie", 2, -0.64, 0.41),
        ("a", "b", "tie", 1, 0.19, -0.25),
        ("b", "a", "tie", 631, 0.58, 0.86),
        ("f", "d", "tie", 4452, 0.82, -0.25),
        ("b", "e", "tie", 11380, 0.32, -0.81),
        ("c", "g", "tie", 28877, 0.73, -0.75),
        ("g", "c", "tie", 10824, 0.89, -0.13),
        ("e", "d", "tie", 1052, -0.15, 0.12),
        ("c", "b", "tie", 3729, -0.24, -0.28),
        ("c", "d", "tie", 15396, -0.07, 0.49),
        ("c", "g", "a", 28811, -0.74, -0.68),
    ]
    votes = [Vote(a, b, outcome, count, covariates=tuple(style)) for a, b, outcome, count, *style in rows]
    columns = VoteColumns.from_votes(votes, features=("x", "y"))
    board = rank_board(columns.counts(), columns, FitOptions(fit="rao_kupper", style=True))
    assert all(math.isfinite(row.rating) for row in board.rows)
