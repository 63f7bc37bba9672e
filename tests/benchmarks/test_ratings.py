"""The benchmarks of the ratings: votes are drawn as the model says, small runs give every figure, and docs/ratings.md
follows from the results."""

import json
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.ratings.agreement import golden_votes, random_sets
from benchmarks.ratings.coverage import anchors, equal_models, newcomers, styles, weightings, whole_boards
from benchmarks.ratings.draws import draw_counts
from benchmarks.ratings.report import PAGE, render
from ratings.bradley_terry import fit_bradley_terry


def test_votes_are_drawn_by_the_model() -> None:
    gap, width = 0.8, 0.5
    counts = draw_counts(np.array([gap, 0.0]), 200_000, np.random.default_rng(0), tie_width=width)
    wins, losses, ties = counts.results("m000", "m001")
    won, lost = (1 / (1 + math.exp(width - side)) for side in (gap, -gap))
    assert np.divide([wins, losses, ties], 200_000) == pytest.approx([won, lost, 1 - won - lost], abs=0.005)
    tally = counts.tally()
    assert tally.by_side[0, 1].sum() == pytest.approx(100_000, rel=0.02)


def test_a_newcomer_of_a_large_board_is_covered_where_a_ridge_fails() -> None:
    figures = newcomers(2_000_000, 40)
    assert figures["covered"] >= 0.85
    assert figures["covered_before"] < 0.7
    assert figures["half_width_points"] > 3 * figures["half_width_points_before"]


def test_an_anchor_keeps_the_others_where_they_are() -> None:
    moves = anchors(50_000, 3)["moves_points"]
    assert moves["thirtieth_vote"]["median"] > 20
    assert moves["thirtieth_vote_with_anchor"]["largest"] < 1
    assert moves["newcomer_of_30_with_anchor"]["largest"] < 1


def test_small_runs_give_every_figure() -> None:
    assert whole_boards(2_000, 5, tie_width=0.7).keys() > whole_boards(2_000, 5).keys()
    assert 0 <= equal_models(2_000, 5)["boards_wrong"] <= 1
    assert styles(3)["effect"] > styles(3)["effect_before"]
    crowd = weightings(2)["one_in_ten_careless"]
    assert crowd["voters"]["covered"] > crowd["votes"]["covered"]


def test_random_sets_can_be_compared_throughout() -> None:
    sets = random_sets(5)
    assert [fit_bradley_terry(votes.counts()).groups.core.all() for votes in sets] == [True] * 5
    assert golden_votes("ctx").features == ("len",)
    assert len(golden_votes("food").score) == 30


def test_the_page_follows_from_the_results() -> None:
    results: dict[str, Any] = json.loads((PAGE.parents[1] / "benchmarks" / "results" / "ratings.json").read_text())
    assert PAGE.read_text() == render(results)
