"""Which rows of a step are read as a group, from the page tables that the host has sent."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import PageTableUpdate
from engine.memory.planning.planner import plan_pool
from engine.memory.spec import LayerSpec
from engine.runner.device.shared_prefixes import MAX_GROUPS, SharedPrefixes, SharedRows, largest_rectangle
from engine.runner.device.step_inputs import Shares

PLAN = plan_pool([LayerSpec("full", 64, "float32")] * 2, page_tokens=4, pool_bytes=1 << 20)
NAME = PLAN.types[0].name
SYSTEM = tuple(range(1, 6))  #: five pages


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runner.device.shared_prefixes.WORTH_BYTES", 64)  # a token, in each of the layers


def whole(slot: int, *pages: int) -> PageTableUpdate:
    return PageTableUpdate(slot, NAME, 0, pages)


def shares(starts: dict[int, int]) -> Shares:
    """By slot: the position of the token that is computed."""
    ones = np.ones(len(starts), np.int64)
    return Shares(np.array(list(starts)), np.array(list(starts.values())), ones, ones)


def groups(found: SharedRows | None) -> list[tuple[list[int], int]]:
    """Which sequences are in each group, and the tokens that they share."""
    assert found is not None
    bounds = found.starts.tolist()
    return [
        (sorted(found.order[first:last].tolist()), int(found.prefixes[first]))
        for first, last in pairwise(bounds)
        if last > first
    ]


def test_rows_with_the_same_first_pages_are_a_group_and_the_rest_is_another() -> None:
    prefixes = SharedPrefixes(PLAN)
    for slot in range(6):
        prefixes.note([whole(slot, *SYSTEM, 10 + slot)])
    prefixes.note([whole(slot, 20 + slot) for slot in range(6, 10)])
    starts = {9: 3, 0: 21, 1: 23, 7: 2, 2: 21, 3: 21, 8: 1, 4: 21, 5: 21, 6: 0}
    found = prefixes.find(shares(starts))
    assert groups(found) == [([1, 2, 4, 5, 7, 8], 20), ([0, 3, 6, 9], 0)]
    assert found is not None
    assert [found.order[place] for place in found.places] == list(range(10))


def test_no_more_is_shared_than_lies_before_every_rows_token() -> None:
    prefixes = SharedPrefixes(PLAN)
    prefixes.note(whole(slot, *SYSTEM) for slot in range(8))
    assert groups(prefixes.find(shares(dict.fromkeys(range(8), 19)))) == [(list(range(8)), 16)]


def test_a_page_that_was_copied_is_shared_no_longer() -> None:
    prefixes = SharedPrefixes(PLAN)
    prefixes.note(whole(slot, *SYSTEM) for slot in range(8))
    step = shares(dict.fromkeys(range(8), 20))
    assert groups(prefixes.find(step)) == [(list(range(8)), 20)]
    prefixes.note([PageTableUpdate(slot, NAME, 4, (30 + slot,)) for slot in range(7)])
    assert groups(prefixes.find(step)) == [(list(range(8)), 16)]


def test_pages_that_a_prompt_adds_are_shared_with_requests_that_find_them_later() -> None:
    prefixes = SharedPrefixes(PLAN)
    prefixes.note([whole(0, *SYSTEM[:2])])
    prefixes.note([PageTableUpdate(0, NAME, 2, SYSTEM[2:])])
    prefixes.note(whole(slot, *SYSTEM) for slot in range(1, 8))
    assert groups(prefixes.find(shares(dict.fromkeys(range(8), 20)))) == [(list(range(8)), 20)]


def test_a_slot_that_changes_hands_is_looked_at_again() -> None:
    prefixes = SharedPrefixes(PLAN)
    prefixes.note(whole(slot, *SYSTEM) for slot in range(8))
    step = shares(dict.fromkeys(range(8), 20))
    found = prefixes.find(step)
    prefixes.note([PageTableUpdate(3, NAME, 5, (40,))])
    assert prefixes.find(step) is found, "a page behind the others changes nothing"
    prefixes.note([whole(3, 50, 51, 52, 53, 54)])
    assert groups(prefixes.find(step)) == [([0, 1, 2, 4, 5, 6, 7], 20), ([3], 0)]


def test_what_saves_too_little_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    step = shares(dict.fromkeys(range(8), 20))
    for worth, is_worth_it in ((7 * 20 * 64, True), (7 * 20 * 64 + 1, False)):
        monkeypatch.setattr("engine.runner.device.shared_prefixes.WORTH_BYTES", worth)
        prefixes = SharedPrefixes(PLAN)
        prefixes.note(whole(slot, *SYSTEM) for slot in range(8))
        assert (prefixes.find(step) is not None) == is_worth_it
    assert prefixes.find(shares({0: 20, 1: 20})) is None


def test_a_row_shares_whatever_lies_behind_its_prefix() -> None:
    """Programs of attention take parts in turn, so no graph has a bound on these tokens."""
    prefixes = SharedPrefixes(PLAN)
    prefixes.note([whole(slot, *SYSTEM, 10 + slot) for slot in range(8)])
    starts = dict.fromkeys(range(8), 20)
    for start in (20, 100_000):
        assert groups(prefixes.find(shares(starts | {7: start}))) == [(list(range(8)), 20)]


@given(st.lists(st.lists(st.integers(1, 3), max_size=5), min_size=8, max_size=24))
def test_every_row_is_in_one_group_and_has_its_pages_in_common(tables: list[list[int]]) -> None:
    prefixes = SharedPrefixes(PLAN)
    prefixes.note(whole(slot, *pages) for slot, pages in enumerate(tables))
    found = prefixes.find(shares({slot: 4 * len(pages) for slot, pages in enumerate(tables)}))
    if found is None:
        return
    assert sorted(found.order.tolist()) == list(range(len(tables)))
    assert found.starts[0] == 0
    assert found.starts[-1] == len(tables)
    assert len(found.starts) - 1 <= MAX_GROUPS
    for first, last in pairwise(found.starts):
        (length,) = set(found.prefixes[first:last].tolist()) or {0}
        assert len({tuple(tables[row][: length // 4]) for row in found.order[first:last] if length}) <= 1


@given(st.lists(st.integers(0, 6), max_size=12))
def test_the_rectangle_is_the_largest(heights: list[int]) -> None:
    first, last, height = largest_rectangle(heights)
    assert height <= min(heights[first:last], default=0)
    areas = [(j - i) * min(heights[i:j]) for i in range(len(heights)) for j in range(i + 1, len(heights) + 1)]
    assert (last - first) * height == max(areas, default=0)
