"""The fit against golden values, an independent iteration and closed forms."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ratings.bradley_terry import POINTS, Fit, expected_scores, fit_bradley_terry
from ratings.outcomes import OUTCOMES, PairCounts, Vote
from ratings.rao_kupper import fit_rao_kupper
from ratings.style import VoteColumns, fit_votes
from ratings.weights import propensity_weights

TOLERANCE = 0.05
MODELS = ("ant", "bee", "cat", "dog")
pairs = st.lists(st.sampled_from(MODELS), min_size=2, max_size=2, unique=True)
vote_lists = st.lists(st.builds(lambda p, o: Vote(p[0], p[1], o), pairs, st.sampled_from(OUTCOMES)), max_size=60)

FOOD = {
    "Tacos": (1159.8020, 980.6184, 1338.9856),
    "Sushi": (1016.7396, 839.2852, 1194.1939),
    "Burger": (972.7674, 807.4251, 1138.1097),
    "Pasta": (947.7822, 788.7438, 1106.8207),
    "Pizza": (902.9088, 739.3039, 1066.5137),
}
SIMPLE = {
    "4": (1136.2407, 962.1250, 1310.3565),
    "3": (1129.8687, 993.1447, 1266.5928),
    "2": (966.6896, 849.8667, 1083.5124),
    "1": (965.9824, 848.0055, 1083.9593),
    "0": (801.2185, 638.5294, 963.9077),
}
CTX_PLAIN = {
    "alpha": (1003.333, 946.839, 1059.827),
    "bravo": (1002.653, 951.446, 1053.860),
    "charlie": (1002.203, 953.292, 1051.115),
    "delta": (991.810, 945.556, 1038.064),
}
CTX_REWEIGHTED = {
    "alpha": (1004.435, 947.689, 1061.182),
    "bravo": (1002.000, 950.034, 1053.967),
    "charlie": (1000.609, 950.760, 1050.458),
    "delta": (992.956, 946.368, 1039.543),
}


def intervals(votes: PairCounts | Fit) -> dict[str, tuple[float, float, float]]:
    fit = votes if isinstance(votes, Fit) else fit_bradley_terry(votes)
    return {
        model: (rating, rating - half, rating + half)
        for model, rating, half in zip(fit.models, fit.ratings, fit.half_widths, strict=True)
    }


def reference_strengths(counts: PairCounts) -> dict[str, float]:
    """Zermelo's iteration, written as on paper: slow and without matrices."""
    models = counts.models
    strength = dict.fromkeys(models, 1.0)
    for _ in range(20_000):
        new = {}
        for model in models:
            points = games = 0.0
            for other in models:
                wins, losses, draws = counts.results(model, other)
                points += wins + draws / 2
                games += (wins + losses + draws) / (strength[model] + strength[other])
            new[model] = points / games
        mean = math.prod(new.values()) ** (1 / len(new))
        new = {model: value / mean for model, value in new.items()}
        moved = max(abs(math.log(new[model] / strength[model])) for model in models)
        strength = new
        if moved < 1e-9:
            break
    return {model: math.log(value) for model, value in strength.items()}


def test_textbook_example_gives_the_published_strengths(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 2, 3), ("A", "D", 1, 4), ("B", "C", 5, 3), ("C", "D", 1, 3))
    fit = fit_bradley_terry(counts)
    assert np.exp(fit.strengths) == pytest.approx([0.6398, 1.0433, 0.6598, 2.2704], abs=1e-4)
    expected = {
        "A": (922.427, 737.106, 1107.748),
        "B": (1007.366, 842.365, 1172.367),
        "C": (927.768, 747.952, 1107.583),
        "D": (1142.439, 930.015, 1354.864),
    }
    for model, interval in intervals(counts).items():
        assert interval == pytest.approx(expected[model], abs=TOLERANCE)


@pytest.mark.parametrize(("name", "expected"), [("food", FOOD), ("simple", SIMPLE), ("ctx", CTX_PLAIN)])
def test_golden_votes_give_the_golden_intervals(
    golden_votes: Callable[[str], list[Vote]], name: str, expected: dict[str, tuple[float, float, float]]
) -> None:
    for model, interval in intervals(PairCounts.from_votes(golden_votes(name))).items():
        assert interval == pytest.approx(expected[model], abs=TOLERANCE)


def test_reweighted_golden_votes_give_the_golden_intervals(golden_votes: Callable[[str], list[Vote]]) -> None:
    columns = VoteColumns.from_votes(golden_votes("ctx"), features=("len",))
    fit = fit_votes(columns, style=False, weights=propensity_weights(columns, pair_floor=20)).fit
    for model, interval in intervals(fit).items():
        assert interval == pytest.approx(CTX_REWEIGHTED[model], abs=TOLERANCE)


@pytest.mark.parametrize("name", ["food", "simple"])
def test_shares_of_strength_agree_with_another_library(
    golden_votes: Callable[[str], list[Vote]], golden_scores: Callable[[str, str], dict[str, float]], name: str
) -> None:
    fit = fit_bradley_terry(PairCounts.from_votes(golden_votes(name)))
    shares = np.exp(fit.strengths) / np.exp(fit.strengths).sum()
    assert dict(zip(fit.models, shares, strict=True)) == pytest.approx(golden_scores(name, "bradley_terry"), rel=1e-4)


@given(vote_lists)
def test_fast_fit_agrees_with_a_readable_one(vote_list: list[Vote]) -> None:
    fit = fit_bradley_terry(PairCounts.from_votes(vote_list))
    assume(len(fit.models) > 1)
    assume(fit.groups.core.all())
    reference = reference_strengths(PairCounts.from_votes(vote_list))
    assert dict(zip(fit.models, fit.strengths, strict=True)) == pytest.approx(reference, abs=1e-4)


@given(vote_lists, st.permutations(MODELS))
def test_renaming_models_only_renames_the_result(vote_list: list[Vote], names: list[str]) -> None:
    renamed = dict(zip(MODELS, names, strict=True))
    before = intervals(PairCounts.from_votes(vote_list))
    after = intervals(PairCounts.from_votes(Vote(renamed[v.model_a], renamed[v.model_b], v.outcome) for v in vote_list))
    for model, interval in before.items():
        assert after[renamed[model]] == pytest.approx(interval, abs=1e-4, nan_ok=True)


@given(vote_lists)
def test_swapping_the_sides_changes_nothing(vote_list: list[Vote]) -> None:
    opposite = {"a": "b", "b": "a", "tie": "tie", "both_bad": "both_bad"}
    swapped = [Vote(v.model_b, v.model_a, opposite[v.outcome]) for v in vote_list]
    before, after = intervals(PairCounts.from_votes(vote_list)), intervals(PairCounts.from_votes(swapped))
    assert before.keys() == after.keys()
    for model, interval in before.items():
        assert after[model] == pytest.approx(interval, abs=1e-6, nan_ok=True)


@given(vote_lists)
def test_reversing_every_outcome_mirrors_the_ratings(vote_list: list[Vote]) -> None:
    opposite = {"a": "b", "b": "a", "tie": "tie", "both_bad": "both_bad"}
    fit = fit_bradley_terry(PairCounts.from_votes(vote_list))
    mirrored = fit_bradley_terry(
        PairCounts.from_votes(Vote(v.model_a, v.model_b, opposite[v.outcome]) for v in vote_list)
    )
    assert mirrored.strengths == pytest.approx(-fit.strengths, abs=1e-6)


@given(vote_lists, st.integers(2, 1000))
def test_more_of_the_same_votes_moves_no_core_gap_and_narrows_intervals(vote_list: list[Vote], times: int) -> None:
    once = fit_bradley_terry(PairCounts.from_votes(vote_list))
    many = fit_bradley_terry(PairCounts.from_votes(Vote(v.model_a, v.model_b, v.outcome, times) for v in vote_list))
    core = once.groups.core
    assert many.strengths[core] == pytest.approx(once.strengths[core], abs=1e-6)
    assert many.half_widths[core] * math.sqrt(times) == pytest.approx(once.half_widths[core], rel=1e-6, abs=1e-6)


@given(vote_lists)
def test_every_result_is_finite(vote_list: list[Vote]) -> None:
    counts = PairCounts.from_votes(vote_list)
    for fit in (fit_bradley_terry(counts), fit_rao_kupper(counts)):
        assert np.isfinite(fit.strengths).all()
        assert np.isfinite(fit.half_widths[fit.groups.core]).all()
        assert np.isnan(fit.half_widths[~fit.groups.core]).all()


def test_a_newcomer_who_only_won_does_not_move_the_board(count_results: Callable[..., PairCounts]) -> None:
    board = [("A", "B", 30, 20), ("B", "C", 25, 20)]
    before = fit_bradley_terry(count_results(*board))
    after = fit_bradley_terry(count_results(*board, ("new", "A", 7, 0)))
    assert after.strengths[:3] == pytest.approx(before.strengths, abs=1e-9)
    assert after.half_widths[:3] == pytest.approx(before.half_widths, abs=1e-9)
    assert after.ratings[3] > after.ratings[0]


def test_the_longer_an_unbeaten_run_the_higher_the_place(count_results: Callable[..., PairCounts]) -> None:
    gaps = []
    for losses, wins in [(0, 1), (0, 2), (0, 20), (0, 200)]:
        fit = fit_bradley_terry(count_results(("A", "B", wins, losses)))
        gaps.append(float(POINTS * (fit.strengths[0] - fit.strengths[1])))
    assert gaps == sorted(gaps)
    assert gaps[0] < 250
    assert gaps[2] == pytest.approx(565, abs=25)


def test_islands_keep_the_gaps_inside_them(count_results: Callable[..., PairCounts]) -> None:
    fit = fit_bradley_terry(count_results(("A", "B", 6, 4), ("C", "D", 7, 3)))
    assert POINTS * (fit.strengths[0] - fit.strengths[1]) == pytest.approx(70.436, abs=0.01)
    assert POINTS * (fit.strengths[2] - fit.strengths[3]) == pytest.approx(147.190, abs=0.01)


def test_lopsided_counts_of_any_size_converge(count_results: Callable[..., PairCounts]) -> None:
    fit = fit_bradley_terry(count_results(("A", "B", 10_000_000, 1), ("B", "C", 1, 3_000_000)))
    assert fit.strengths[0] - fit.strengths[1] == pytest.approx(math.log(1e7), abs=1e-4)
    assert fit.strengths[2] - fit.strengths[1] == pytest.approx(math.log(3e6), abs=1e-4)


def test_intervals_against_one_model_measure_the_gap_to_it(count_results: Callable[..., PairCounts]) -> None:
    fit = fit_bradley_terry(count_results(("A", "B", 30, 20), ("B", "C", 25, 20)))
    against_a = fit.recentred(np.array([True, False, False]))
    assert against_a.ratings[0] == 1000
    assert against_a.half_widths[0] == pytest.approx(0, abs=1e-6)
    assert against_a.strengths[1] - against_a.strengths[0] == pytest.approx(fit.strengths[1] - fit.strengths[0])
    # In a chain A-B-C the gap of A and B depends on their own votes only: p = 0.6 of 50, variance 1 / (50 p (1 - p)).
    assert against_a.half_widths[1] == pytest.approx(1.96 * POINTS / math.sqrt(50 * 0.6 * 0.4), rel=1e-3)


@pytest.mark.parametrize("per_pair", [1_000, 1_000_000])
def test_the_interval_of_a_newcomer_does_not_depend_on_the_votes_of_others(
    count_results: Callable[..., PairCounts], per_pair: int
) -> None:
    """30 votes against models whose strengths are known: the variance is 1 / sum p (1 - p)."""
    board = [(a, b, per_pair, per_pair) for a, b in itertools.combinations("ABCDE", 2)]
    fit = fit_bradley_terry(count_results(*board, ("new", "A", 10, 5), ("new", "B", 10, 5)))
    against_others = fit.recentred(np.array([True] * 5 + [False]))
    assert against_others.half_widths[5] == pytest.approx(1.96 * POINTS / math.sqrt(30 * 2 / 3 / 3), rel=0.01)


def test_intervals_are_as_wide_as_those_of_votes_drawn_anew(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(
        ("A", "B", 400, 300, 150), ("A", "C", 500, 200, 80), ("B", "C", 260, 250, 200), ("C", "D", 300, 310, 40)
    )
    cells = list(counts.cells())
    shares = [count / counts.num_votes for *_, count in cells]
    drawn = []
    for resample in np.random.default_rng(0).multinomial(counts.num_votes, shares, 400):
        again = PairCounts()
        for (model_a, model_b, outcome, _), count in zip(cells, resample.tolist(), strict=True):
            again.add(model_a, model_b, outcome, count)
        drawn.append(fit_bradley_terry(again).ratings)
    lower, upper = np.quantile(drawn, [0.025, 0.975], axis=0)
    fit = fit_bradley_terry(counts)

    assert (upper - lower) / 2 == pytest.approx(fit.half_widths, rel=0.15)
    assert (upper + lower) / 2 == pytest.approx(fit.ratings, abs=5)


def test_chances_stay_between_zero_and_one_at_any_gap() -> None:
    chances = expected_scores(np.array([-1e6, 0.0, 1e6]))
    assert chances.tolist() == [[0.5, 0, 0], [1, 0.5, 0], [1, 1, 0.5]]
