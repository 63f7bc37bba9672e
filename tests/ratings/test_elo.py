"""Online Elo against another library and published values."""

from collections.abc import Callable

import pytest

from ratings.elo import OnlineElo, online_elo
from ratings.errors import InvalidVoteError
from ratings.outcomes import Vote

DINNER = [Vote("pizza", "burger", "a"), Vote("sushi", "burger", "a"), Vote("pizza", "sushi", "tie")]


@pytest.mark.parametrize("name", ["food", "simple"])
def test_ratings_agree_with_another_library(
    golden_votes: Callable[[str], list[Vote]], golden_scores: Callable[[str, str], dict[str, float]], name: str
) -> None:
    assert online_elo(golden_votes(name)) == pytest.approx(golden_scores(name, "elo"), abs=1e-9)


@pytest.mark.parametrize(
    ("k_factor", "expected"),
    [
        (4, {"pizza": 1001.999934, "burger": 996.011513, "sushi": 1001.988553}),
        (30, {"pizza": 1014.972058, "burger": 970.647200, "sushi": 1014.380742}),
    ],
)
def test_three_votes_give_the_published_ratings(k_factor: float, expected: dict[str, float]) -> None:
    assert online_elo(DINNER, k_factor=k_factor) == pytest.approx(expected, abs=1e-6)


def test_what_one_side_gains_the_other_loses() -> None:
    elo = OnlineElo()
    gain = elo.add("x", "y", "a")
    assert gain == 2
    assert elo.ratings == {"x": 1002, "y": 998}


def test_ratings_continue_from_where_they_were_stored() -> None:
    first = OnlineElo()
    first.add("x", "y", "a")
    second = OnlineElo(first.ratings)
    for elo in (first, second):
        elo.add("y", "x", "both_bad")
    assert second.ratings == first.ratings


def test_flagged_votes_move_nothing() -> None:
    assert online_elo([Vote("x", "y", "a", flags=frozenset({"spam"}))]) == {}


def test_a_weight_stands_for_equal_votes() -> None:
    assert online_elo([Vote("x", "y", "a", 3)]) == online_elo([Vote("x", "y", "a")] * 3)


def test_an_absurd_gap_stays_finite() -> None:
    elo = OnlineElo({"x": 1e9, "y": 0.0})
    assert elo.add("x", "y", "b") == pytest.approx(-4)


def test_a_model_cannot_meet_itself() -> None:
    with pytest.raises(InvalidVoteError):
        OnlineElo().add("x", "x", "a")
