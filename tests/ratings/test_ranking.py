"""The leaderboard: ranks, flags and matrices."""

import itertools
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratings.bradley_terry import NORMAL_975, POINTS
from ratings.errors import UnknownModelError
from ratings.options import FitModel, FitOptions, Weighting
from ratings.outcomes import OUTCOMES, PairCounts, Vote
from ratings.ranking import Leaderboard, LeaderboardRow, rank_board, rank_models
from ratings.style import VoteColumns, fit_votes

MODELS = ("ant", "bee", "cat", "dog", "elk")
pairs = st.lists(st.sampled_from(MODELS), min_size=2, max_size=2, unique=True)
votes = st.builds(lambda p, o, w: Vote(p[0], p[1], o, w), pairs, st.sampled_from(OUTCOMES), st.integers(1, 20))
vote_lists = st.lists(votes, max_size=40)
ALL_OPTIONS = [
    FitOptions(fit, style, weighting)
    for fit, style, weighting in itertools.product(get_args(FitModel), (False, True), get_args(Weighting))
]


def row_of(board: Leaderboard, model: str) -> LeaderboardRow:
    return next(row for row in board.rows if row.model == model)


def assert_sound(board: Leaderboard) -> None:
    """Properties of every leaderboard."""
    assert [row.rating for row in board.rows] == pytest.approx(sorted((r.rating for r in board.rows), reverse=True))
    for row in board.rows:
        assert math.isfinite(row.rating)
        assert row.wins + row.losses + row.ties == row.votes
        assert row.both_bad <= row.ties
        assert 1 <= row.rank <= row.worst_rank <= len(board.rows)
        assert (row.lower is None) == (row.upper is None) == bool(row.flags)
        if row.lower is not None and row.upper is not None:
            assert row.lower < row.rating < row.upper
    assert sum(row.votes for row in board.rows) == 2 * board.num_votes
    for i, row in enumerate(board.rows):
        assert sum(board.battle_count[i]) == row.votes
        for j in range(len(board.rows)):
            forth, back = board.predicted[i][j], board.predicted[j][i]
            assert (forth is None) == (i == j)
            if forth is not None and back is not None:
                assert forth + back == pytest.approx(1)
            assert (board.win_rate[i][j] is None) == (board.battle_count[i][j] == 0)


@given(vote_lists, st.integers(1, 30))
def test_any_votes_give_a_sound_leaderboard(vote_list: list[Vote], min_votes: int) -> None:
    counts = PairCounts.from_votes(vote_list)
    columns = VoteColumns.from_votes(vote_list, features=())
    for options in ALL_OPTIONS:
        assert_sound(rank_board(counts, columns, replace(options, min_votes=min_votes), models=MODELS))


@given(vote_lists, st.randoms(use_true_random=False))
def test_order_of_votes_changes_no_digit(vote_list: list[Vote], rng: random.Random) -> None:
    shuffled = rng.sample(vote_list, len(vote_list))
    assert rank_models(PairCounts.from_votes(vote_list)) == rank_models(PairCounts.from_votes(shuffled))


def test_rows_carry_the_golden_intervals(golden_votes: Callable[[str], list[Vote]]) -> None:
    board = rank_models(PairCounts.from_votes(golden_votes("food")), min_votes=1)
    assert board.models == ("Tacos", "Sushi", "Burger", "Pasta", "Pizza")
    tacos = board.rows[0]
    assert (tacos.rating, tacos.lower, tacos.upper) == pytest.approx((1159.802, 980.618, 1338.986), abs=0.05)
    assert np.mean([row.rating for row in board.rows]) == pytest.approx(1000)


@pytest.mark.parametrize("name", ["food", "simple"])
def test_average_win_rates_agree_with_another_library(
    golden_votes: Callable[[str], list[Vote]], golden_scores: Callable[[str, str], dict[str, float]], name: str
) -> None:
    board = rank_models(PairCounts.from_votes(golden_votes(name)))
    assert {row.model: row.win_rate for row in board.rows} == pytest.approx(golden_scores(name, "average_win_rate"))


def test_rank_counts_the_models_that_are_certainly_better(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(
        count_results(("A", "B", 500, 480), ("A", "C", 700, 200), ("B", "C", 700, 210), ("C", "D", 600, 100))
    )
    assert [(row.model, row.rank, row.worst_rank) for row in board.rows] == [
        ("A", 1, 2),
        ("B", 1, 2),
        ("C", 3, 3),
        ("D", 4, 4),
    ]


def test_ranks_come_from_differences_and_not_from_intervals(count_results: Callable[..., PairCounts]) -> None:
    """Both models are known badly against the third, and well against each other."""
    board = rank_models(count_results(("A", "B", 700, 550), ("B", "C", 20, 12)), min_votes=10)
    first, second = row_of(board, "A"), row_of(board, "B")
    assert first.lower is not None
    assert second.upper is not None
    assert first.lower < second.upper
    assert (first.worst_rank, second.rank) == (2, 2)
    assert (first.rank, second.worst_rank) == (1, 3)


def test_ranges_of_ranks_are_true_for_the_whole_board_at_once() -> None:
    """Of equal models every rank is open: a board with a narrower range is wrong."""
    rng, wrong = np.random.default_rng(5), 0
    models = tuple(f"m{index}" for index in range(12))
    for _ in range(150):
        a = rng.integers(12, size=3000)
        b = (a + rng.integers(1, 12, size=a.size)) % 12
        board = rank_models(PairCounts.from_arrays(models, a, b, rng.integers(2, size=a.size)))
        wrong += any((row.rank, row.worst_rank) != (1, 12) for row in board.rows)
    assert wrong / 150 < 0.09  # 0.05 is promised; single intervals at 95 % are wrong on nearly every board


def test_the_board_gives_strengths_and_covariance_by_row(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 30, 40), ("B", "C", 40, 30), ("D", "A", 5, 0)))
    assert board.models == ("D", "B", "A", "C")
    assert np.isnan(board.strengths).tolist() == [True, False, False, False]
    for i, row in enumerate(board.rows[1:], 1):
        assert row.upper == pytest.approx(row.rating + NORMAL_975 * POINTS * math.sqrt(board.covariance[i, i]))
        assert row.rating == pytest.approx(1000 + POINTS * board.strengths[i])


def test_columns_that_are_needed_must_be_given(count_results: Callable[..., PairCounts]) -> None:
    with pytest.raises(ValueError, match="columns"):
        rank_board(count_results(("A", "B", 1, 1)), None, FitOptions(weighting="voters"))


def test_matrices_follow_the_rows(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 10, 30), ("B", "C", 20, 10, 10)), min_votes=1)
    assert board.models == ("B", "C", "A")
    assert board.battle_count == ((0, 40, 40), (40, 0, 0), (40, 0, 0))
    assert board.win_rate == ((None, 0.625, 0.75), (0.375, None, None), (0.25, None, None))
    assert board.predicted[0][2] == pytest.approx(0.75)
    json.dumps([board.win_rate, board.battle_count, board.predicted])


def test_anchor_stands_at_1000_and_moves_everyone_with_it(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 40, 30), ("B", "C", 40, 30))
    free, held = rank_models(counts), rank_board(counts, None, FitOptions(anchor=("C",)))
    shift = 1000 - row_of(free, "C").rating
    for before, after in zip(free.rows, held.rows, strict=True):
        assert after.rating == pytest.approx(before.rating + shift)
        assert (after.rank, after.worst_rank) == (before.rank, before.worst_rank)
    anchor = row_of(held, "C")
    assert (anchor.rating, anchor.lower, anchor.upper) == (1000, 1000, 1000)


def test_an_anchor_of_several_models_has_their_mean_at_1000(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 400, 300), ("B", "C", 400, 300), ("new", "C", 1, 1))
    board = rank_board(counts, None, FitOptions(anchor=("A", "B", "silent")), models=["silent"])
    assert board.anchor == ("A", "B")
    assert row_of(board, "A").rating + row_of(board, "B").rating == pytest.approx(2000)
    # Of the difference of A and B, of which each is one half away: p = 4/7 of 700 votes.
    width = 1.96 * POINTS / math.sqrt(700 * 4 / 7 * 3 / 7) / 2
    assert row_of(board, "A").upper == pytest.approx(row_of(board, "A").rating + width, rel=1e-3)


def test_an_anchor_without_votes_leaves_the_usual_scale(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 40, 30), ("C", "A", 3, 0))
    board = rank_board(counts, None, FitOptions(anchor=("C",)))
    assert board.anchor == ()
    assert board.rows == rank_models(counts).rows


def newcomer_board(num_votes: int) -> PairCounts:
    """Six models with a hundred thousand votes, and a weak newcomer with `num_votes`."""
    counts = PairCounts()
    for first, second in itertools.combinations(range(6), 2):
        share = 1 / (1 + math.exp(0.4 * (first - second)))
        counts.add(f"m{first}", f"m{second}", "b", round(7000 * share))
        counts.add(f"m{first}", f"m{second}", "a", round(7000 * (1 - share)))
    for vote in range(num_votes):
        counts.add("new", f"m{vote % 6}", "a" if vote in (4, 13) else "b")
    return counts


def test_with_an_anchor_no_newcomer_moves_another_model() -> None:
    anchored = FitOptions(anchor=("m2", "m3"))
    silent, *entering = (rank_board(newcomer_board(num), None, anchored, models=["new"]) for num in (0, 29, 30, 60))
    for board in entering:
        moves = [abs(row_of(board, f"m{i}").rating - row_of(silent, f"m{i}").rating) for i in range(6)]
        assert max(moves) < 1
    # Without an anchor its thirtieth vote lifts them all.
    before, after = (rank_models(newcomer_board(num)) for num in (29, 30))
    assert row_of(after, "m5").rating > row_of(before, "m5").rating + 30


def test_an_unknown_anchor_is_refused(count_results: Callable[..., PairCounts]) -> None:
    with pytest.raises(UnknownModelError, match="'Z'"):
        rank_board(count_results(("A", "B", 1, 1)), None, FitOptions(anchor=("Z",)))


def test_a_model_that_never_lost_is_flagged_and_gets_no_interval(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 20, 0), ("B", "C", 6, 5)), min_votes=10)
    assert row_of(board, "A").flags == ("never_lost",)
    assert row_of(board, "A").lower is None
    assert row_of(board, "A").rating == pytest.approx(1565, abs=1)
    assert [row.flags for row in board.rows[1:]] == [(), ()]


def test_votes_that_say_nothing_do_not_lift_a_model_over_the_minimum(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 20, 0), ("B", "C", 6, 5)), min_votes=20)
    assert row_of(board, "B").votes == 31
    assert row_of(board, "B").flags == ("too_few_votes",)


def test_a_model_that_never_won_is_flagged(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 0, 20), ("B", "C", 60, 50)))
    assert row_of(board, "A").flags == ("too_few_votes", "never_won")
    assert board.models == ("B", "C", "A")


def test_a_tie_is_enough_to_be_comparable(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 40, 0, 1), ("B", "C", 60, 50)))
    assert row_of(board, "A").flags == ()


def test_separate_islands_are_flagged(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 60, 50), ("C", "D", 35, 25)))
    assert [row_of(board, model).flags for model in "ABCD"] == [(), (), ("disconnected",), ("disconnected",)]
    equal = rank_models(count_results(("A", "B", 60, 50), ("C", "D", 60, 50)))
    assert all(row.flags == ("disconnected",) for row in equal.rows)


def test_a_group_that_took_every_point_is_flagged(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 60, 50), ("C", "D", 25, 15), ("C", "A", 5, 0)))
    assert [row_of(board, model).flags for model in "ABCD"] == [(), (), ("one_sided",), ("one_sided",)]
    assert board.models[:2] == ("C", "D")


def test_only_ties_give_equal_ratings_and_no_interval(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 0, 0, 100), ("B", "C", 0, 0, 100)))
    assert [(row.rating, row.flags, row.rank) for row in board.rows] == [(1000, ("only_ties",), 1)] * 3


def test_models_linked_by_ties_alone_get_no_interval(count_results: Callable[..., PairCounts]) -> None:
    beaten_outsider = rank_models(count_results(("A", "B", 0, 0, 50), ("A", "C", 1, 0)))
    assert row_of(beaten_outsider, "A").flags == ("only_ties",)
    bridge = rank_models(count_results(("A", "B", 0, 0, 50), ("A", "X", 1, 1), ("B", "Y", 1, 1)))
    assert row_of(bridge, "A").flags == row_of(bridge, "B").flags == ("only_ties",)


def test_without_votes_every_known_model_stands_in_the_middle() -> None:
    board = rank_models(PairCounts(), models=["B", "A"])
    assert [(row.model, row.rating, row.flags) for row in board.rows] == [
        ("A", 1000, ("no_votes",)),
        ("B", 1000, ("no_votes",)),
    ]
    assert board.num_votes == 0
    assert rank_models(PairCounts()).rows == ()


def test_a_single_model_is_a_leaderboard(golden_votes: Callable[[str], list[Vote]]) -> None:
    row = rank_board(PairCounts(), None, FitOptions(anchor=("A",)), models=["A"]).rows[0]
    assert (row.rating, row.rank, row.win_rate) == (1000, 1, None)


def test_one_vote_moves_both_models_a_little(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 1, 0)), models=["C"])
    assert [row.model for row in board.rows] == ["A", "C", "B"]
    assert 1000 < board.rows[0].rating < 1150
    assert board.rows[0].flags == ("too_few_votes", "never_lost")
    assert board.rows[1].flags == ("no_votes",)


def test_a_newcomer_does_not_move_or_blur_the_others(count_results: Callable[..., PairCounts]) -> None:
    board = [("A", "B", 300, 280), ("B", "C", 290, 250), ("A", "C", 280, 200)]
    before = rank_models(count_results(*board))
    after = rank_models(count_results(*board, ("new", "C", 1, 1)), models=["silent"])
    for row in before.rows:
        moved = row_of(after, row.model)
        assert (row.lower, row.upper) == pytest.approx((moved.lower, moved.upper), abs=1)
        assert moved.rating == pytest.approx(row.rating, abs=0.5)
        assert moved.rank == row.rank
    assert row_of(after, "silent").rating == 1000


def test_a_row_tells_how_many_votes_would_flip_it(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 60, 40)))
    assert [row.votes_to_flip for row in board.rows] == [21, None]
    with_ties = rank_board(count_results(("A", "B", 60, 40)), None, FitOptions(fit="rao_kupper"))
    assert [row.votes_to_flip for row in with_ties.rows] == [None, None]


def test_both_bad_counts_as_a_tie_unless_left_out() -> None:
    counts = PairCounts.from_votes([Vote("A", "B", "a", 40), Vote("A", "B", "b", 20), Vote("A", "B", "both_bad", 60)])
    with_ties, decisive = rank_models(counts), rank_models(counts.without("both_bad"))
    assert (with_ties.rows[0].ties, with_ties.rows[0].both_bad) == (60, 60)
    assert with_ties.rows[0].win_rate == pytest.approx(70 / 120)
    assert decisive.rows[0].win_rate == pytest.approx(2 / 3)
    assert decisive.rows[0].rating > with_ties.rows[0].rating


def test_style_board_has_the_same_shape_and_the_coefficients(golden_votes: Callable[[str], list[Vote]]) -> None:
    columns = VoteColumns.from_votes(golden_votes("ctx"), features=("len",), models=["echo"])
    board = rank_board(columns.counts(), columns, FitOptions(style=True))
    assert_sound(board)
    fitted = fit_votes(columns)
    assert row_of(board, "alpha").rating == pytest.approx(fitted.fit.ratings[0])
    assert row_of(board, "echo").flags == ("no_votes",)
    assert board.coefficients == fitted.coefficients


def test_intervals_cover_the_truth_as_often_as_they_promise() -> None:
    rng = np.random.default_rng(11)
    hits = rows = 0
    for _ in range(120):
        truth = rng.normal(0, 0.7, 5)
        a = rng.integers(5, size=250)
        b = (a + rng.integers(1, 5, size=a.size)) % 5
        lost = rng.random(a.size) > 1 / (1 + np.exp(truth[b] - truth[a]))
        board = rank_models(PairCounts.from_arrays(MODELS, a, b, lost), min_votes=1)
        assert not any(row.flags for row in board.rows)
        for row in board.rows:
            true_rating = 1000 + 400 / math.log(10) * (truth[MODELS.index(row.model)] - truth.mean())
            assert row.lower is not None
            assert row.upper is not None
            hits += row.lower <= true_rating <= row.upper
            rows += 1
    assert 0.92 < hits / rows < 0.98
