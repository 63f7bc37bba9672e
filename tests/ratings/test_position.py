"""The effect of standing first."""

from dataclasses import replace

import numpy as np
import pytest

from ratings.bradley_terry import POINTS, fit_bradley_terry
from ratings.outcomes import PairCounts
from ratings.position import position_bias
from ratings.ranking import rank_models


def drawn_counts(effect: float, num_votes: int, seed: int = 4) -> PairCounts:
    rng = np.random.default_rng(seed)
    strengths = np.array([0.5, 0.0, -0.5])
    a = rng.integers(3, size=num_votes)
    b = (a + rng.integers(1, 3, size=num_votes)) % 3
    a_wins = rng.random(num_votes) < 1 / (1 + np.exp(strengths[b] - strengths[a] - effect))
    return PairCounts.from_arrays(("x", "y", "z"), a, b, 1 - a_wins)


def test_a_taste_for_the_first_answer_is_found() -> None:
    bias = position_bias(fit_bradley_terry(drawn_counts(0.2, 20_000)))
    assert bias is not None
    assert bias.points == pytest.approx(POINTS * 0.2, abs=10)
    assert bias.lower is not None
    assert bias.lower > 0


def test_fair_voters_have_none_at_95_percent() -> None:
    inside = 0
    for seed in range(100):
        bias = rank_models(drawn_counts(0.0, 400, seed)).position_bias
        assert bias is not None
        assert bias.lower is not None
        assert bias.upper is not None
        inside += bias.lower <= 0 <= bias.upper
    assert 90 <= inside <= 99


def test_a_model_that_always_stood_first_tells_nothing() -> None:
    counts = PairCounts()
    counts.add("x", "y", "a", 30)
    counts.add("x", "y", "b", 20)
    bias = position_bias(fit_bradley_terry(counts))
    assert bias is not None
    assert (bias.lower, bias.upper) == (None, None)


def test_votes_that_all_go_to_the_first_answer_stay_finite() -> None:
    counts = PairCounts()
    counts.add("x", "y", "a", 30)
    counts.add("y", "x", "a", 30)
    bias = position_bias(fit_bradley_terry(counts))
    assert bias is not None
    assert 500 < bias.points < 2000


def test_without_comparable_models_there_is_no_estimate() -> None:
    counts = PairCounts()
    counts.add("x", "y", "a", 3)
    assert position_bias(fit_bradley_terry(counts)) is None
    assert rank_models(PairCounts(), models=["x"]).position_bias is None


def test_strengths_at_equal_style_may_be_a_bad_start() -> None:
    fit = fit_bradley_terry(drawn_counts(0.2, 5_000))
    far = replace(fit, strengths=60.0 * fit.strengths)
    expected, found = position_bias(fit), position_bias(far)
    assert expected is not None
    assert found is not None
    assert found.points == pytest.approx(expected.points, abs=1e-6)
