"""Weights of votes: pairs that were drawn unevenly, and voters who vote by chance."""

from dataclasses import replace

import numpy as np
import pytest

from ratings.bradley_terry import fit_bradley_terry
from ratings.options import FitOptions
from ratings.outcomes import PairCounts, Vote
from ratings.ranking import rank_board
from ratings.style import VoteColumns, fit_votes
from ratings.weights import diagnose_propensity, propensity_weights, voter_covariance, voter_weights

#: A beats B, B beats C and C beats A: no strengths fit, so that the board depends on how often each pair was drawn.
CYCLE = {("A", "B"): 0.8, ("B", "C"): 0.7, ("A", "C"): 0.4}
STRENGTHS = np.array([0.9, 0.3, -0.3, -0.9])


def cycle(numbers: dict[tuple[str, str], int], *, is_known: bool = True) -> VoteColumns:
    total = sum(numbers.values())
    votes = [
        Vote(*pair, outcome, round(number * share), covariates=(), probability=number / total if is_known else None)
        for pair, number in numbers.items()
        for outcome, share in (("a", CYCLE[pair]), ("b", 1 - CYCLE[pair]))
    ]
    return VoteColumns.from_votes(votes, features=())


def crowd(careless: int, rng: np.random.Generator, votes_each: int = 40) -> VoteColumns:
    """100 voters, of whom the first `careless` toss a coin."""
    voter = np.repeat(np.arange(100), votes_each)
    a = rng.integers(4, size=voter.size)
    b = (a + rng.integers(1, 4, size=voter.size)) % 4
    chance = np.where(voter < careless, 0.5, 1 / (1 + np.exp(STRENGTHS[b] - STRENGTHS[a])))
    outcome = np.where(rng.random(voter.size) < chance, 0, 1)
    ones = np.ones(voter.size)
    return VoteColumns(("m0", "m1", "m2", "m3"), (), a, b, outcome, ones, np.zeros((voter.size, 0)), voter=voter)


@pytest.mark.parametrize("is_known", [True, False], ids=["stored probabilities", "frequencies"])
def test_an_uneven_draw_is_weighted_away(is_known: bool) -> None:
    even = fit_bradley_terry(cycle(dict.fromkeys(CYCLE, 100)).counts())
    uneven = cycle({("A", "B"): 800, ("B", "C"): 100, ("A", "C"): 100}, is_known=is_known)
    weighted = fit_votes(uneven, style=False, weights=propensity_weights(uneven)).fit
    assert weighted.strengths == pytest.approx(even.strengths, abs=1e-6)
    assert abs(fit_bradley_terry(uneven.counts()).strengths - even.strengths).max() > 0.1


def test_a_rare_pair_is_not_weighted_up_beyond_the_floor() -> None:
    columns = cycle({("A", "B"): 1000, ("B", "C"): 100, ("A", "C"): 10}, is_known=False)
    weight = {
        columns.models[a] + columns.models[b]: w
        for a, b, w in zip(columns.model_a, columns.model_b, propensity_weights(columns, pair_floor=50), strict=True)
    }
    assert weight["AB"] * 1000 == pytest.approx(weight["BC"] * 100)
    assert weight["AC"] * 50 == pytest.approx(weight["BC"] * 100)


def test_diagnostics_tell_what_the_weights_cost() -> None:
    columns = cycle({("A", "B"): 800, ("B", "C"): 100, ("A", "C"): 100})
    weights = propensity_weights(columns)
    assert np.average(weights, weights=columns.weight) == pytest.approx(1)
    seen = diagnose_propensity(columns, weights)
    assert (seen.num_known, seen.smallest) == (1000, 0.1)
    # Weights in proportion 1 : 8 : 8.
    assert seen.effective_votes == pytest.approx((800 + 1600) ** 2 / (800 + 64 * 200))
    board = rank_board(columns.counts(), columns, FitOptions(weighting="propensity"))
    assert board.propensity == seen
    unknown = replace(columns, probability=np.full(len(columns.weight), np.nan))
    assert diagnose_propensity(unknown, propensity_weights(unknown)).num_known == 0


def test_weighted_intervals_are_as_wide_as_the_votes_scatter() -> None:
    rng, drawn = np.random.default_rng(8), []
    numbers = {("A", "B"): 800, ("B", "C"): 100, ("A", "C"): 100}
    expected = cycle(numbers)
    for _ in range(200):
        wins = {pair: int(rng.binomial(number, CYCLE[pair])) for pair, number in numbers.items()}
        votes = [
            Vote(*pair, outcome, count, covariates=(), probability=numbers[pair] / 1000)
            for pair in numbers
            for outcome, count in (("a", wins[pair]), ("b", numbers[pair] - wins[pair]))
        ]
        columns = VoteColumns.from_votes(votes, features=())
        drawn.append(fit_votes(columns, style=False, weights=propensity_weights(columns)).fit.strengths)
    fit = fit_votes(expected, style=False, weights=propensity_weights(expected)).fit
    # The strengths do not fit a cycle, which widens the sandwich a little beyond the scatter of fixed pairs.
    ratio = np.sqrt(np.diag(fit.covariance)) / np.std(drawn, axis=0)
    assert (ratio > 0.9).all()
    assert (ratio < 1.5).all()


def test_voters_who_toss_a_coin_weigh_little() -> None:
    columns = crowd(20, np.random.default_rng(0))
    weights = voter_weights(columns)
    careless = columns.voter < 20
    assert np.average(weights[careless]) < 0.35
    assert np.average(weights[~careless]) > 0.9
    plain, weighted = fit_bradley_terry(columns.counts()), fit_votes(columns, style=False, weights=weights).fit
    assert np.ptp(plain.strengths) < 1.55  # of 1.8
    assert np.ptp(weighted.strengths) == pytest.approx(1.8, abs=0.15)


def test_intervals_know_that_the_weights_are_estimates() -> None:
    """Standard errors against the scatter of 80 drawn crowds; as if the weights were given they are a quarter less."""
    rng, drawn, errors, given = np.random.default_rng(5), [], [], []
    for _ in range(80):
        columns = crowd(20, rng, votes_each=20)
        weights = voter_weights(columns)
        fit = fit_votes(columns, style=False, weights=weights).fit
        drawn.append(fit.strengths)
        errors.append(np.sqrt(np.diag(voter_covariance(columns, weights, fit))))
        given.append(np.sqrt(np.diag(fit.covariance)))
    assert np.mean(errors) == pytest.approx(np.mean(np.std(drawn, axis=0)), rel=0.1)
    assert np.mean(given) < 0.88 * np.mean(errors)


def test_votes_of_unknown_voters_have_the_plain_intervals() -> None:
    columns = crowd(0, np.random.default_rng(6), votes_each=5)
    unknown = replace(columns, voter=np.full(columns.voter.size, -1))
    fit = fit_bradley_terry(columns.counts())
    assert voter_covariance(unknown, np.ones(columns.voter.size), fit) == pytest.approx(fit.covariance)
    # So have those of voters with one vote each and no doubt about them.
    single = replace(columns, voter=np.arange(columns.voter.size))
    assert voter_covariance(single, np.ones(columns.voter.size), fit) == pytest.approx(fit.covariance)


def test_the_board_by_voters_has_these_intervals() -> None:
    columns = crowd(20, np.random.default_rng(7))
    board = rank_board(columns.counts(), columns, FitOptions(weighting="voters"))
    weights = voter_weights(columns)
    fit = fit_votes(columns, style=False, weights=weights).fit
    expected = voter_covariance(columns, weights, fit)
    assert np.diag(board.covariance) == pytest.approx(np.diag(expected))


def test_honest_voters_keep_their_weight_and_the_scale() -> None:
    columns = crowd(0, np.random.default_rng(1))
    weights = voter_weights(columns)
    assert np.average(weights) > 0.95
    assert fit_votes(columns, style=False, weights=weights).fit.strengths == pytest.approx(
        fit_bradley_terry(columns.counts()).strengths, abs=0.05
    )


def test_somebody_who_votes_against_everyone_weighs_least() -> None:
    honest = crowd(0, np.random.default_rng(2))
    turned = replace(honest, outcome=np.where(honest.voter == 7, 1 - honest.outcome, honest.outcome))
    assert voter_weights(turned)[turned.voter == 7].max() == pytest.approx(1e-3)


def test_ties_and_unknown_voters_are_not_judged() -> None:
    columns = crowd(20, np.random.default_rng(3))
    ties = replace(columns, outcome=np.where(columns.voter < 20, 2, columns.outcome))
    assert (voter_weights(ties)[columns.voter < 20] > 0.9).all()
    renumbered = replace(columns, voter=columns.voter * 2**40 + 3)
    assert (voter_weights(renumbered) == voter_weights(columns)).all()
    unknown = replace(columns, voter=np.full(columns.voter.size, -1))
    assert (voter_weights(unknown) == 1).all()
    assert rank_board(PairCounts(), unknown_columns(), FitOptions(weighting="voters")).rows == ()


def unknown_columns() -> VoteColumns:
    return VoteColumns.from_votes([], features=())
