"""Pairs as they are drawn: fair, among models with room, with their probability."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from controller.battles.matchmaking import Matchmaker
from ratings.outcomes import PairCounts, Tally
from ratings.pairing import MAX_SHARE, PairingMode
from wire.errors import ApiError, ErrorCode
from wire.workers import ModelCard


def _card(name: str) -> ModelCard:
    return ModelCard(
        name=name, revision=f"rev-{name}", architecture="x", num_parameters=1, dtype="f", context_length=10
    )


def _matchmaker(
    *models: str, full: tuple[str, ...] = (), mode: PairingMode = "uniform", held: list[PairCounts] | None = None
) -> Matchmaker:
    held = [PairCounts()] if held is None else held
    return Matchmaker(
        lambda: {name: _card(name) for name in models},
        lambda model: model not in full,
        lambda: held[0],
        lambda _: 1.0,
        mode=mode,
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


async def test_active_pairs_follow_the_votes_at_the_last_weighing() -> None:
    held = [PairCounts()]
    matchmaker = _matchmaker(*"abcdef", mode="active", held=held)

    def share_of_close_pair() -> float:
        return sum({side.model for side in matchmaker.draw()} == {"a", "b"} for _ in range(400)) / 400

    await matchmaker.weigh_round()
    assert share_of_close_pair() < 0.12  # without votes each of 15 pairs is as doubtful as the others
    held[0] = PairCounts()
    for index, first in enumerate("abcdef"):
        for second in "abcdef"[index + 1 :]:
            is_close = (first, second) == ("a", "b")
            held[0].add(first, second, "a", 500 if is_close else 800)
            held[0].add(first, second, "b", 500 if is_close else 200)
    assert share_of_close_pair() < 0.12  # a request weighs nothing
    await matchmaker.weigh_round()
    assert share_of_close_pair() == pytest.approx(MAX_SHARE, abs=0.06)


async def test_pairs_are_weighed_again_only_after_new_votes() -> None:
    first, second = _CountedTallies(), _CountedTallies()
    held: list[PairCounts] = [first]
    matchmaker = _matchmaker("x", "y", "z", mode="active", held=held)
    await matchmaker.weigh_round()
    await matchmaker.weigh_round()
    held[0] = second
    await matchmaker.weigh_round()

    assert (first.num_tallies, second.num_tallies) == (1, 1)


async def test_uniform_pairs_are_never_weighed() -> None:
    counts = _CountedTallies()
    await _matchmaker("x", "y", held=[counts]).weigh_round()

    assert counts.num_tallies == 0


def test_after_a_redraw_the_probability_is_that_of_the_pair_among_all() -> None:
    matchmaker = _matchmaker("v", "w", "x", "y", "z")

    assert all(matchmaker.redraw("x", excluded="y").probability == 1 / 10 for _ in range(20))  # type: ignore[union-attr]


async def test_a_redrawn_pair_and_a_drawn_one_have_the_same_probability() -> None:
    counts = PairCounts()
    counts.add("w", "x", "a", 30)
    counts.add("x", "y", "b", 20)
    matchmaker = _matchmaker("w", "x", "y", "z", mode="active", held=[counts])
    await matchmaker.weigh_round()
    drawn = {}
    for a, b in (matchmaker.draw() for _ in range(300)):
        drawn[frozenset((a.model, b.model))] = a.probability
    redrawn = [matchmaker.redraw("x", excluded="y") for _ in range(50)]

    assert len(drawn) == 6
    assert {side.model for side in redrawn if side} == {"w", "z"}
    assert all(side and side.probability == drawn[frozenset(("x", side.model))] for side in redrawn)


def test_a_redraw_counts_models_that_have_no_room_any_more() -> None:
    matchmaker = _matchmaker("v", "w", "x", "y", "z", full=("x", "y"))
    drawn = matchmaker.redraw("x", excluded="y")

    assert drawn is not None
    assert drawn.model in {"v", "w", "z"}
    assert drawn.probability == 1 / 10


class _CountedTallies(PairCounts):
    def __init__(self) -> None:
        super().__init__()
        self.num_tallies = 0

    def tally(self, models: Sequence[str] | None = None) -> Tally:
        self.num_tallies += 1
        return super().tally(models)
