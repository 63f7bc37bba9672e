"""Style control: recovered effects, and the plain fit without any."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ratings.bradley_terry import fit_bradley_terry
from ratings.errors import InvalidVoteError
from ratings.outcomes import PairCounts, Vote
from ratings.style import STYLE_FEATURES, AnswerStyle, VoteColumns, fit_votes, style_differences
from ratings.weights import propensity_weights

TOLERANCE = 0.05
COLUMNS = ("model_a", "model_b", "outcome", "weight", "covariates", "probability", "has_style", "voter")


@pytest.fixture
def ctx(golden_votes: Callable[[str], list[Vote]]) -> VoteColumns:
    return VoteColumns.from_votes(golden_votes("ctx"), features=("len",))


@pytest.fixture(scope="module")
def biased() -> VoteColumns:
    """20 000 votes by people who like the longer answer; model 3 writes long answers and is otherwise the weakest."""
    rng = np.random.default_rng(7)
    strengths, habit = np.array([0.6, 0.2, -0.2, -0.6]), np.array([-0.3, 0.0, 0.0, 0.3])
    a = rng.integers(4, size=20_000)
    b = (a + rng.integers(1, 4, size=a.size)) % 4
    length = np.clip(habit[a] - habit[b] + rng.normal(0, 0.3, a.size), -1, 1)
    noise = rng.normal(0, 0.3, a.size)
    a_wins = rng.random(a.size) < 1 / (1 + np.exp(strengths[b] - strengths[a] - 2.0 * length))
    covariates = np.stack([length, noise], axis=1)
    return VoteColumns(("m0", "m1", "m2", "m3"), ("length", "noise"), a, b, 1 - a_wins, np.ones(a.size), covariates)


def biased_half(votes: VoteColumns, kept: np.ndarray) -> VoteColumns:
    columns = {name: getattr(votes, name)[kept] for name in COLUMNS}
    return replace(votes, **columns)


def test_golden_votes_give_the_golden_style_controlled_ratings(ctx: VoteColumns) -> None:
    style = fit_votes(ctx, penalty=162)  # a mean loss with L2 = 1 is a sum over 162 votes with L2 = 162
    assert style.fit.ratings == pytest.approx([1003.091, 1002.533, 1002.250, 992.127], abs=TOLERANCE)
    assert style.fit.half_widths[0] == pytest.approx((1060.370 - 945.812) / 2, abs=TOLERANCE)
    assert style.coefficients[0].value == pytest.approx(-0.009366, abs=1e-6)


def test_reweighted_golden_votes_give_the_golden_style_controlled_ratings(ctx: VoteColumns) -> None:
    style = fit_votes(ctx, penalty=162, weights=propensity_weights(ctx, pair_floor=20))
    assert style.fit.ratings == pytest.approx([1004.203, 1001.863, 1000.660, 993.274], abs=TOLERANCE)
    assert style.coefficients[0].value == pytest.approx(-0.009358, abs=1e-6)


def test_a_taste_for_long_answers_is_found_and_taken_out(biased: VoteColumns) -> None:
    style = fit_votes(biased)
    length, noise = style.coefficients
    spread = biased.covariates[:, 0].std()
    assert length.lower < 2.0 * spread < length.upper
    assert noise.lower < 0 < noise.upper
    assert style.fit.strengths == pytest.approx([0.6, 0.2, -0.2, -0.6], abs=0.1)
    plain = fit_bradley_terry(biased.counts())
    assert plain.strengths[3] > style.fit.strengths[3] + 0.3


def test_votes_of_unknown_style_do_not_dilute_the_coefficients(biased: VoteColumns) -> None:
    """Half of the votes come from an import that counted nothing."""
    half = np.arange(len(biased.outcome)) % 2 == 0
    zeros = replace(biased, covariates=np.where(half[:, None], biased.covariates, 0.0))
    known_only = fit_votes(biased_half(biased, half))
    partly, diluted = fit_votes(replace(zeros, has_style=half)), fit_votes(zeros)
    assert partly.coefficients[0].value == pytest.approx(known_only.coefficients[0].value, rel=0.01)
    assert partly.coefficients[0].value / biased.covariates[half, 0].std() > 1.9
    assert diluted.coefficients[0].value / zeros.covariates[:, 0].std() < 1.4  # of 2.0
    # The import counts for the strengths all the same, at the style that is expected of its models.
    assert partly.fit.strengths == pytest.approx([0.6, 0.2, -0.2, -0.6], abs=0.1)
    assert (partly.fit.half_widths < known_only.fit.half_widths).all()


def test_without_any_known_style_the_board_is_the_plain_one(biased: VoteColumns) -> None:
    unknown = fit_votes(replace(biased, has_style=np.zeros(len(biased.outcome), dtype=bool)))
    assert unknown.fit.ratings == pytest.approx(fit_bradley_terry(biased.counts()).ratings, abs=1e-6)
    assert [coefficient.value for coefficient in unknown.coefficients] == [0, 0]
    assert all(np.isnan([coefficient.lower, coefficient.upper]).all() for coefficient in unknown.coefficients)


def test_a_feature_that_follows_from_another_has_no_interval(biased: VoteColumns) -> None:
    twice = np.concatenate([biased.covariates[:, :1], 2 * biased.covariates[:, :1]], axis=1)
    same = fit_votes(replace(biased, covariates=twice))
    assert np.isnan([coefficient.upper for coefficient in same.coefficients]).all()
    assert same.fit.half_widths == pytest.approx(fit_votes(biased).fit.half_widths, rel=0.02)


def test_without_covariates_the_joint_fit_is_the_plain_fit(biased: VoteColumns) -> None:
    votes = [
        Vote("m0", "m1", "a", 12),
        Vote("m1", "m0", "a", 9),
        Vote("m1", "m2", "tie", 5),
        Vote("m2", "m1", "b", 7),
        Vote("m2", "m0", "a", 4),
        Vote("m3", "m0", "a", 3),
    ]
    style = fit_votes(VoteColumns.from_votes(votes, features=()))
    plain = fit_bradley_terry(PairCounts.from_votes(votes))
    assert style.fit.ratings == pytest.approx(plain.ratings, abs=1e-4)
    assert style.fit.half_widths == pytest.approx(plain.half_widths, abs=1e-4, nan_ok=True)
    assert style.coefficients == ()


def test_a_weight_stands_for_equal_votes() -> None:
    votes = [Vote("x", "y", "a", covariates=(0.1,)), Vote("x", "y", "b", covariates=(-0.4,))]
    weighted = [Vote(v.model_a, v.model_b, v.outcome, 3, covariates=v.covariates) for v in votes]
    once, thrice = (fit_votes(VoteColumns.from_votes(v, features=("len",))) for v in (votes * 3, weighted))
    assert thrice.fit.ratings == pytest.approx(once.fit.ratings)
    assert thrice.coefficients[0].value == pytest.approx(once.coefficients[0].value)


def test_a_feature_that_never_varies_has_no_effect() -> None:
    votes = [Vote("x", "y", outcome, 5, covariates=(0.25,)) for outcome in ("a", "b", "tie")]
    assert fit_votes(VoteColumns.from_votes(votes, features=("len",))).coefficients[0].value == 0


def test_a_feature_that_decides_every_vote_stays_finite() -> None:
    votes = [Vote("x", "y", "a", 50, covariates=(0.5,)), Vote("x", "y", "b", 50, covariates=(-0.5,))]
    style = fit_votes(VoteColumns.from_votes(votes, features=("len",)))
    assert 1 < style.coefficients[0].value < 10
    assert style.fit.ratings == pytest.approx([1000, 1000], abs=1e-6)


@pytest.mark.parametrize("votes", [[], [Vote("x", "y", "a", covariates=(0.1,))]])
def test_too_few_votes_for_a_fit_give_finite_ratings(votes: list[Vote]) -> None:
    style = fit_votes(VoteColumns.from_votes(votes, features=("len",), models=["x", "y", "z"]))
    assert np.isfinite(style.fit.ratings).all()
    assert np.isnan(style.fit.half_widths).all()
    assert style.coefficients[0].value == 0


def test_style_is_a_share_of_both_answers() -> None:
    assert style_differences(AnswerStyle(100, 0, 3, 1), AnswerStyle(115, 0, 1, 0)) == pytest.approx(
        (-15 / 215, 0, 0.5, 1)
    )
    assert len(STYLE_FEATURES) == 4


def test_votes_without_covariates_are_refused() -> None:
    with pytest.raises(InvalidVoteError):
        VoteColumns.from_votes([Vote("x", "y", "a")])


def test_columns_say_what_is_not_known_of_a_vote() -> None:
    columns = VoteColumns.from_votes(
        [
            Vote("x", "y", "a", covariates=None, voter="v"),
            Vote("x", "z", "b", covariates=(1, 0, 0, 0), probability=0.25, voter="w"),
            Vote("x", "z", "b", covariates=(0, 0, 0, 0), voter="v"),
            Vote("x", "z", "b", covariates=(0, 0, 0, 0)),
        ]
    )
    assert columns.has_style.tolist() == [False, True, True, True]
    assert columns.probability.tolist() == pytest.approx([np.nan, 0.25, np.nan, np.nan], nan_ok=True)
    assert columns.voter.tolist() == [0, 1, 0, -1]
    bare = VoteColumns(
        columns.models, (), columns.model_a, columns.model_b, columns.outcome, columns.weight, np.zeros((4, 0))
    )
    assert bare.has_style.all()
    assert np.isnan(bare.probability).all()
    assert bare.voter.tolist() == [-1] * 4


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidVoteError, match="2 votes"):
        VoteColumns(("x", "y"), (), *(np.zeros(2, dtype=np.int64),) * 3, np.ones(1), np.zeros((2, 0)))


def test_columns_take_the_positions_of_another_list_of_models() -> None:
    columns = VoteColumns.from_votes([Vote("x", "y", "a", covariates=())], features=())
    wider = columns.over(("w", "y", "x"))
    assert (wider.model_a.tolist(), wider.model_b.tolist()) == ([2], [1])
    assert wider.counts() == columns.counts()
