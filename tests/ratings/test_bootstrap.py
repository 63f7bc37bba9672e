"""Bootstrap intervals against the sandwich."""

from collections.abc import Callable

import numpy as np
import pytest

from ratings.bootstrap import bootstrap_intervals
from ratings.bradley_terry import fit_bradley_terry
from ratings.outcomes import PairCounts


def test_bootstrap_agrees_with_the_sandwich_on_many_votes(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(
        ("A", "B", 400, 300, 150), ("A", "C", 500, 200, 80), ("B", "C", 260, 250, 200), ("C", "D", 300, 310, 40)
    )
    fit = fit_bradley_terry(counts)
    resampled = bootstrap_intervals(counts, np.random.default_rng(0), rounds=400)
    assert (resampled.upper - resampled.lower) / 2 == pytest.approx(fit.half_widths, rel=0.15)
    assert (resampled.upper + resampled.lower) / 2 == pytest.approx(fit.ratings, abs=5)


def test_the_same_seed_gives_the_same_intervals(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 12, 9), ("B", "C", 3, 5))
    first, second = (bootstrap_intervals(counts, np.random.default_rng(3), rounds=20) for _ in range(2))
    assert first.lower.tolist() == second.lower.tolist()


def test_resamples_that_are_separable_stay_finite(count_results: Callable[..., PairCounts]) -> None:
    resampled = bootstrap_intervals(count_results(("A", "B", 3, 1)), np.random.default_rng(1), rounds=100)
    assert np.isfinite(resampled.lower).all()
    assert np.isfinite(resampled.upper).all()


def test_models_outside_the_core_get_no_interval(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 20, 0), ("B", "C", 6, 5))
    resampled = bootstrap_intervals(counts, np.random.default_rng(1), rounds=10)
    assert np.isnan(resampled.lower).tolist() == [True, False, False]


def test_no_votes_give_no_intervals() -> None:
    assert bootstrap_intervals(PairCounts(), np.random.default_rng(1)).models == ()
