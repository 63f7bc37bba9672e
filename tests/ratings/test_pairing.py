"""Probabilities of pairs, and the draw."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratings.outcomes import PairCounts
from ratings.pairing import CAUTION, FLOOR, MAX_SHARE, UNKNOWN, Misordering, PairTable, misordering

LETTERS = "abcdefghij"

models = st.lists(st.sampled_from(LETTERS), max_size=12)
matrices = st.lists(st.floats(1e-12, 0.5), min_size=45, max_size=45)


def _misordering(names: str, **probabilities: float) -> Misordering:
    """Of these pairs; the others 0.001."""
    matrix = np.full((len(names), len(names)), 0.001)
    for pair, probability in probabilities.items():
        i, j = (names.index(letter) for letter in pair)
        matrix[i, j] = matrix[j, i] = probability
    np.fill_diagonal(matrix, 0.0)
    return Misordering(tuple(names), matrix)


def _all(table: PairTable, names: str) -> dict[tuple[str, str], float]:
    return {pair: table.probability(*pair) for pair in combinations(names, 2)}


@given(models, matrices, st.floats(0, 1))
def test_probabilities_sum_to_one_over_all_pairs_within_floor_and_limit(
    names: list[str], values: list[float], floor: float
) -> None:
    pairs = {"".join(pair): value for pair, value in zip(combinations(LETTERS, 2), values, strict=True)}
    table = PairTable(names, _misordering(LETTERS, **pairs), floor=floor)
    probabilities = [table.probability(*pair) for pair in combinations(dict.fromkeys(names), 2)]
    num_pairs = len(probabilities)
    assert sum(probabilities) == pytest.approx(1 if probabilities else 0)
    assert all(probability >= floor / num_pairs - 1e-12 for probability in probabilities)
    assert all(probability <= max(MAX_SHARE, 2 / num_pairs) + 1e-12 for probability in probabilities)


def test_without_votes_all_pairs_are_alike() -> None:
    empty = misordering(PairCounts().tally())
    for table in (PairTable("abcd"), PairTable("abcd", empty)):
        assert set(_all(table, "abcd").values()) == {1 / 6}


def test_shares_follow_the_probability_of_misordering() -> None:
    matrix = {"ab": 0.2, "cd": 0.15, "ef": 0.1, "gh": 0.2, "ij": 0.25}
    table = PairTable(LETTERS, _misordering(LETTERS, **matrix))
    total = sum(matrix.values()) + 40 * 0.001
    for pair, value in {**matrix, "ac": 0.001}.items():
        assert table.probability(*pair) == pytest.approx((1 - FLOOR) * value / total + FLOOR / 45)


def test_a_pair_that_is_never_decided_is_not_drawn_more_often_than_the_limit() -> None:
    table = PairTable(LETTERS, _misordering(LETTERS, ab=0.5, cd=0.01, ef=0.02))
    assert table.probability("a", "b") == MAX_SHARE
    assert table.probability("e", "f") > table.probability("c", "d") > table.probability("a", "c")


def test_with_few_pairs_the_limit_leaves_a_choice() -> None:
    table = PairTable("abc", _misordering("abc", ab=0.4))
    assert table.probability("a", "b") == pytest.approx(2 / 3)
    assert PairTable("ab", _misordering("ab", ab=1e-9)).probability("a", "b") == 1.0


def test_a_model_that_was_not_in_the_fit_comes_before_decided_pairs() -> None:
    known = _misordering("abc", ab=0.01, ac=0.01, bc=0.01)
    assert known.among("ax")[0, 1] == UNKNOWN
    table = PairTable("abcn", known)
    assert table.probability("a", "n") == pytest.approx((1 - FLOOR) * 0.5 / 1.53 + FLOOR / 6)


def test_the_order_of_close_models_is_more_doubtful_and_votes_settle_it(
    count_results: Callable[..., PairCounts],
) -> None:
    rows = [("a", "b", 55, 45), ("a", "c", 90, 10), ("b", "c", 90, 10)]
    few, many = (
        misordering(count_results(*((a, b, n * won, n * lost) for a, b, won, lost in rows)).tally()) for n in (1, 20)
    )
    assert few.models == ("a", "b", "c")
    assert 0.2 < few.probability[0, 1] < 0.4
    assert few.probability[0, 1] > 5 * few.probability[0, 2]
    assert many.probability[0, 1] < 0.05
    assert many.probability[0, 2] < 1e-9
    np.testing.assert_array_equal(few.probability, few.probability.T)


def test_probability_of_misordering_is_that_of_the_posterior(count_results: Callable[..., PairCounts]) -> None:
    """Against an integral over a grid: two models, a normal prior of spread 1 on each strength."""
    won, lost = 30, 22
    gaps = np.linspace(-4, 4, 20_001)
    log_posterior = won * -np.logaddexp(0, -gaps) + lost * -np.logaddexp(0, gaps) - gaps**2 / 4  # variance 2
    density = np.exp(log_posterior - log_posterior.max())
    exact = density[gaps < 0].sum() / density.sum()
    found = misordering(count_results(("a", "b", won, lost)).tally()).probability[0, 1]
    normal = NormalDist()
    assert normal.cdf(CAUTION * normal.inv_cdf(found)) == pytest.approx(exact, abs=0.005)


def test_a_model_that_only_won_has_a_probability(count_results: Callable[..., PairCounts]) -> None:
    counts = count_results(("a", "b", 50, 50), ("n", "a", 3, 0))
    matrix = misordering(counts.tally(["a", "b", "n", "without votes"])).probability
    assert np.isfinite(matrix).all()
    assert 0.1 < matrix[0, 2] < 0.4
    assert matrix[0, 3] == pytest.approx(0.5, abs=0.15)


def test_draws_follow_the_probabilities_and_both_sides_are_fair() -> None:
    table = PairTable("abc", _misordering("abc", ab=0.001, ac=0.002, bc=0.002))
    rng = random.Random(5)
    drawn = [table.draw(rng) for _ in range(6000)]
    seen = Counter((pair.model_a, pair.model_b) for pair in drawn)
    for (first, second), probability in _all(table, "abc").items():
        assert (seen[first, second] + seen[second, first]) / 6000 == pytest.approx(probability, abs=0.03)
        assert seen[first, second] == pytest.approx(seen[second, first], rel=0.2)
    assert all(pair.probability == table.probability(pair.model_a, pair.model_b) for pair in drawn)


def test_opponents_follow_the_probabilities_of_their_pairs() -> None:
    table = PairTable("abcd", _misordering("abcd", ab=0.3, ac=0.1, ad=0.3, bc=0.3, bd=0.3, cd=0.3))
    rng = random.Random(5)
    drawn = Counter(table.draw_opponent("a", "abc", rng) for _ in range(4000))
    ab, ac = table.probability("a", "b"), table.probability("a", "c")
    assert set(drawn) == {"b", "c"}
    assert drawn["b"] / 4000 == pytest.approx(ab / (ab + ac), abs=0.03)
    assert table.draw_opponent("a", "a", rng) is None


def test_the_same_generator_state_draws_the_same_pair() -> None:
    table = PairTable("abcdef")
    assert table.draw(random.Random(1)) == table.draw(random.Random(1))


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="no pair"):
        PairTable("a").draw(random.Random(1))
    with pytest.raises(ValueError, match="floor"):
        PairTable("abc", floor=1.5)
    with pytest.raises(ValueError, match="itself"):
        PairTable("abc").probability("a", "a")
    with pytest.raises(KeyError):
        PairTable("abc").probability("a", "x")


def test_a_pair_is_drawn_in_proportion_to_the_weights_of_its_models() -> None:
    table = PairTable("abc", weights={"a": 1.0, "b": 1.0, "c": 0.25})
    assert table.probability("a", "b") == pytest.approx(1 / 1.5)
    assert table.probability("a", "c") == table.probability("b", "c") == pytest.approx(0.25 / 1.5)


def test_no_weight_makes_a_pair_likelier_than_the_limit() -> None:
    names = "abcdefghij"
    table = PairTable(names, weights={name: 100.0 if name in "ab" else 1.0 for name in names})
    assert table.probability("a", "b") == pytest.approx(0.25)
    assert sum(table.probability(x, y) for x, y in combinations(names, 2)) == pytest.approx(1.0)


def test_a_weight_is_above_zero() -> None:
    with pytest.raises(ValueError):
        PairTable("ab", weights={"a": 1.0, "b": 0.0})
