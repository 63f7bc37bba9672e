"""Pairs as they are drawn: fair, among models with room, with their probability."""

import random
from collections import Counter

import pytest

from controller.battles.matchmaking import Matchmaker
from ratings.outcomes import PairCounts
from wire.errors import ApiError, ErrorCode
from wire.workers import ModelCard


def _card(name: str) -> ModelCard:
    return ModelCard(
        name=name, revision=f"rev-{name}", architecture="x", num_parameters=1, dtype="f", context_length=10
    )


def _matchmaker(*models: str, full: tuple[str, ...] = ()) -> Matchmaker:
    return Matchmaker(
        lambda: {name: _card(name) for name in models},
        lambda model: model not in full,
        PairCounts,
        lambda _: 1.0,
        mode="uniform",
        rng=random.Random(7),
    )


def test_every_ordered_pair_comes_up_and_no_model_meets_itself() -> None:
    matchmaker = _matchmaker("x", "y", "z")

    drawn = Counter(tuple(side.model for side in matchmaker.draw()) for _ in range(1200))

    assert set(drawn) == {(a, b) for a in "xyz" for b in "xyz" if a != b}
    assert all(120 < count < 290 for count in drawn.values())


def test_the_probability_and_the_revisions_come_with_the_pair() -> None:
    a, b = _matchmaker("x", "y", "z").draw()

    assert a.probability == b.probability == pytest.approx(1 / 3)
    assert {a.revision, b.revision} < {"rev-x", "rev-y", "rev-z"}


def test_models_without_room_are_left_out() -> None:
    matchmaker = _matchmaker("x", "y", "z", full=("z",))

    assert all({side.model for side in matchmaker.draw()} == {"x", "y"} for _ in range(20))


def test_one_model_is_no_battle() -> None:
    with pytest.raises(ApiError) as refusal:
        _matchmaker("x").draw()

    assert refusal.value.code is ErrorCode.NOT_ENOUGH_MODELS


def test_two_models_of_which_one_is_full_are_busy() -> None:
    with pytest.raises(ApiError) as refusal:
        _matchmaker("x", "y", full=("y",)).draw()

    assert refusal.value.code is ErrorCode.QUEUE_FULL


def test_a_redrawn_side_is_neither_the_opponent_nor_the_one_that_failed() -> None:
    matchmaker = _matchmaker("w", "x", "y", "z")

    drawn = {matchmaker.redraw("x", excluded="y").model for _ in range(50)}  # type: ignore[union-attr]

    assert drawn == {"w", "z"}


def test_without_a_third_model_nothing_is_redrawn() -> None:
    assert _matchmaker("x", "y").redraw("x", excluded="y") is None
