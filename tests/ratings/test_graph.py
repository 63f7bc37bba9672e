"""Groups of comparable models."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ratings.graph import find_groups, membership


def score_matrix(size: int, edges: list[tuple[int, int, float]]) -> np.ndarray:
    scores = np.zeros((size, size))
    for winner, loser, points in edges:
        scores[winner, loser] += points
    return scores


def test_models_in_a_cycle_of_wins_form_one_group() -> None:
    groups = find_groups(score_matrix(3, [(0, 1, 1), (1, 2, 1), (2, 0, 1)]))
    assert groups.strong.tolist() == [0, 0, 0]
    assert groups.core.all()


def test_a_model_that_never_lost_is_a_group_of_its_own() -> None:
    groups = find_groups(score_matrix(3, [(0, 1, 20), (1, 2, 6), (2, 1, 5)]))
    assert groups.strong.tolist() == [0, 1, 1]
    assert groups.islands.tolist() == [0, 0, 0]
    assert groups.core.tolist() == [False, True, True]


def test_islands_are_told_apart_and_the_busier_one_is_the_core() -> None:
    groups = find_groups(score_matrix(4, [(0, 1, 1), (1, 0, 1), (2, 3, 5), (3, 2, 5)]))
    assert groups.islands.tolist() == [0, 0, 1, 1]
    assert groups.core.tolist() == [False, False, True, True]


def test_equally_busy_islands_have_no_core() -> None:
    assert not find_groups(score_matrix(4, [(0, 1, 1), (1, 0, 1), (2, 3, 1), (3, 2, 1)])).core.any()


def test_no_models_make_no_groups() -> None:
    groups = find_groups(np.zeros((0, 0)))
    assert len(groups.strong) == len(groups.core) == 0


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_groups_agree_with_a_search_from_every_model(graph: tuple[int, set[tuple[int, int]]]) -> None:
    size, edges = graph

    def reached(start: int) -> set[int]:
        found, waiting = {start}, [start]
        while waiting:
            here = waiting.pop()
            new = {loser for winner, loser in edges if winner == here} - found
            found |= new
            waiting.extend(new)
        return found

    reach = [reached(model) for model in range(size)]
    groups = find_groups(score_matrix(size, [(i, j, 1.0) for i, j in edges if i != j]))
    for i in range(size):
        for j in range(size):
            assert (groups.strong[i] == groups.strong[j]) == (j in reach[i] and i in reach[j])


def test_membership_has_one_group_per_model() -> None:
    member = membership(np.array([0, 1, 0]))
    assert member.tolist() == [[1, 0], [0, 1], [1, 0]]
