"""The leaderboard: ranks, flags and matrices."""

import json
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratings.errors import UnknownModelError
from ratings.outcomes import OUTCOMES, PairCounts, Vote
from ratings.ranking import Leaderboard, LeaderboardRow, rank_models, rank_with_style
from ratings.style import VoteColumns

MODELS = ("ant", "bee", "cat", "dog", "elk")
pairs = st.lists(st.sampled_from(MODELS), min_size=2, max_size=2, unique=True)
votes = st.builds(lambda p, o, w: Vote(p[0], p[1], o, w), pairs, st.sampled_from(OUTCOMES), st.integers(1, 20))
vote_lists = st.lists(votes, max_size=40)


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
    for reweighted in (False, True):
        assert_sound(rank_models(counts, models=MODELS, min_votes=min_votes, reweighted=reweighted))


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


def test_matrices_follow_the_rows(count_results: Callable[..., PairCounts]) -> None:
    board = rank_models(count_results(("A", "B", 10, 30), ("B", "C", 20, 10, 10)), min_votes=1)
    assert board.models == ("B", "C", "A")
    assert board.battle_count == ((0, 40, 40), (40, 0, 0), (40, 0, 0))
    assert board.win_rate == ((None, 0.625, 0.75), (0.375, None, None), (0.25, None, None))
    assert board.predicted[0][2] == pytest.approx(0.75)
    json.dumps([board.win_rate, board.battle_count, board.predicted])


def test_anchor_stands_at_1000_and_moves_everyone_with_it(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("A", "B", 40, 30), ("B", "C", 40, 30))
    free, held = rank_models(counts), rank_models(counts, anchor="C")
    assert row_of(held, "C").rating == 1000
    shift = 1000 - row_of(free, "C").rating
    for before, after in zip(free.rows, held.rows, strict=True):
        assert before.lower is not None
        assert after.rating == pytest.approx(before.rating + shift)
        assert after.lower == pytest.approx(before.lower + shift)


def test_an_unknown_anchor_is_refused(count_results: Callable[..., PairCounts]) -> None:
    with pytest.raises(UnknownModelError, match="'Z'"):
        rank_models(count_results(("A", "B", 1, 1)), anchor="Z")


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
    row = rank_models(PairCounts(), models=["A"], anchor="A").rows[0]
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
    reweighted = rank_models(count_results(("A", "B", 60, 40)), reweighted=True)
    hurried = rank_models(count_results(("A", "B", 60, 40)), flips=False)
    assert [row.votes_to_flip for row in hurried.rows] == [None, None]
    assert [row.votes_to_flip for row in reweighted.rows] == [None, None]


def test_both_bad_counts_as_a_tie_unless_left_out() -> None:
    counts = PairCounts.from_votes([Vote("A", "B", "a", 40), Vote("A", "B", "b", 20), Vote("A", "B", "both_bad", 60)])
    with_ties, decisive = rank_models(counts), rank_models(counts.without("both_bad"))
    assert (with_ties.rows[0].ties, with_ties.rows[0].both_bad) == (60, 60)
    assert with_ties.rows[0].win_rate == pytest.approx(70 / 120)
    assert decisive.rows[0].win_rate == pytest.approx(2 / 3)
    assert decisive.rows[0].rating > with_ties.rows[0].rating


def test_style_board_has_the_same_shape_and_the_coefficients(golden_votes: Callable[[str], list[Vote]]) -> None:
    columns = VoteColumns.from_votes(golden_votes("ctx"), features=("len",), models=["echo"])
    board = rank_with_style(columns, penalty=162)
    assert_sound(board)
    assert row_of(board, "alpha").rating == pytest.approx(1003.091, abs=0.05)
    assert row_of(board, "echo").flags == ("no_votes",)
    assert board.coefficients[0].value == pytest.approx(-0.009366, abs=1e-6)


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
