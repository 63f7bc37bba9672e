"""Probabilities of pairs in each mode, and the draw."""

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratings.outcomes import PairCounts
from ratings.pairing import PairingMode, draw_pair, expected_gain, pair_probabilities

modes = st.sampled_from(["uniform", "weighted", "active"])
models = st.lists(st.sampled_from("abcdefg"), max_size=9)


@given(models, modes, st.floats(0, 1))
def test_probabilities_cover_every_pair_once_and_sum_to_one(names: list[str], mode: PairingMode, floor: float) -> None:
    counts = PairCounts()
    counts.add("a", "b", "a", 30)
    probabilities = pair_probabilities(names, counts, mode=mode, floor=floor)
    distinct = len(set(names))
    assert len(probabilities) == distinct * (distinct - 1) // 2
    assert all(first != second for first, second in probabilities)
    assert len({frozenset(pair) for pair in probabilities}) == len(probabilities)
    assert sum(probabilities.values()) == pytest.approx(1 if probabilities else 0)


def test_fewer_than_two_models_make_no_pair() -> None:
    assert pair_probabilities(["a"]) == {}
    assert pair_probabilities(["a", "a"]) == {}


def test_uniform_gives_every_pair_the_same() -> None:
    assert set(pair_probabilities("abcd").values()) == {1 / 6}


def test_a_weight_multiplies_the_share_of_a_model() -> None:
    probabilities = pair_probabilities("abc", mode="weighted", weights={"a": 5})
    assert probabilities == pytest.approx({("a", "b"): 5 / 11, ("a", "c"): 5 / 11, ("b", "c"): 1 / 11})


def test_a_model_of_weight_zero_is_never_drawn() -> None:
    for mode in ("weighted", "active"):
        probabilities = pair_probabilities("abc", mode=mode, weights={"a": 0})
        assert probabilities == pytest.approx({("a", "b"): 0, ("a", "c"): 0, ("b", "c"): 1})


def test_active_prefers_the_pair_that_one_more_vote_teaches_most(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("a", "b", 50, 50), ("a", "c", 5, 5), ("b", "c", 9, 1))
    probabilities = pair_probabilities("abc", counts, mode="active", floor=0)
    gains = {pair: expected_gain(*counts.results(*pair)) for pair in probabilities}
    assert probabilities == pytest.approx({pair: gain / sum(gains.values()) for pair, gain in gains.items()})
    assert probabilities["a", "c"] > probabilities["b", "c"] > probabilities["a", "b"]


def test_active_never_starves_a_pair(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("a", "b", 500_000, 500_000))
    probabilities = pair_probabilities("abc", counts, mode="active", floor=0.3)
    assert probabilities["a", "b"] == pytest.approx(0.1, rel=1e-3)


def test_gain_follows_the_published_formula_and_falls_with_votes() -> None:
    variance = 51 / 102 * (1 - 51 / 102)
    assert expected_gain(50, 50, 0) == pytest.approx(math.sqrt(variance / 100) - math.sqrt(variance / 101))
    gains = [expected_gain(n, n, 0) for n in (0, 1, 2, 10, 100)]
    assert gains == sorted(gains, reverse=True)
    assert expected_gain(10, 0, 0) > 0


def test_draws_follow_the_probabilities_and_both_sides_are_fair() -> None:
    probabilities = pair_probabilities("abc", mode="weighted", weights={"a": 3})
    rng = random.Random(5)
    drawn = [draw_pair(probabilities, rng) for _ in range(6000)]
    seen = Counter((pair.model_a, pair.model_b) for pair in drawn)
    for (first, second), probability in probabilities.items():
        assert (seen[first, second] + seen[second, first]) / 6000 == pytest.approx(probability, abs=0.03)
        assert seen[first, second] == pytest.approx(seen[second, first], rel=0.2)
    assert all(pair.probability in probabilities.values() for pair in drawn)


def test_the_same_generator_state_draws_the_same_pair() -> None:
    probabilities = pair_probabilities("abcdef")
    assert draw_pair(probabilities, random.Random(1)) == draw_pair(probabilities, random.Random(1))


def test_there_must_be_a_pair_to_draw() -> None:
    with pytest.raises(ValueError, match="no pair"):
        draw_pair({}, random.Random(1))


@pytest.mark.parametrize(
    "options", [{"mode": "fair"}, {"mode": "active", "floor": 1.5}, {"mode": "weighted", "weights": {"a": -1}}]
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        pair_probabilities("abc", **options)  # type: ignore[arg-type]
