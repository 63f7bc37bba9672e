"""When a model gets another replica, and when it gives one back: the rule alone, over a clock of the test's own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.arena.placement.scaling import ModelLoad, Scaling, ScalingRule

RULE = ScalingRule(queued_tokens=100, first_token_s=1.0, up_after_s=10.0, down_after_s=60.0, spare_share=0.5)
CALM = ModelLoad(num_ready=2, running=1, max_running=16)
BUSY = ModelLoad(num_ready=1, running=8, waiting=5, queued_tokens=500, max_running=8)


def after(scaling: Scaling, load: ModelLoad, replicas: int, *, first: float, last: float, most: int = 4) -> int:
    """The number at the end of a look each second."""
    now = first
    while now <= last:
        number = scaling.step(now, load, replicas, 1, most)
        if number != replicas:
            return number
        now += 1.0
    return replicas


def test_a_queue_that_lasts_brings_one_more_replica() -> None:
    scaling = Scaling(RULE)
    assert after(scaling, BUSY, 1, first=0, last=9) == 1
    assert scaling.step(10.0, BUSY, 1, 1, 4) == 2


def test_a_queue_that_passes_brings_none() -> None:
    scaling = Scaling(RULE)
    assert after(scaling, BUSY, 1, first=0, last=9) == 1
    assert scaling.step(9.5, replace(BUSY, waiting=0, queued_tokens=0), 1, 1, 4) == 1
    assert after(scaling, BUSY, 1, first=10, last=19) == 1


def test_slow_first_tokens_count_only_where_requests_wait() -> None:
    slow = ModelLoad(num_ready=1, running=8, waiting=1, max_running=8, first_token_s=3.0)
    assert after(Scaling(RULE), slow, 1, first=0, last=10) == 2
    assert after(Scaling(RULE), replace(slow, waiting=0), 1, first=0, last=100) == 1


def test_nothing_changes_while_a_replica_starts() -> None:
    scaling = Scaling(RULE)
    assert after(scaling, BUSY, 2, first=0, last=100) == 2  # the second is not ready yet
    both = replace(BUSY, num_ready=2)
    assert after(scaling, both, 2, first=101, last=110) == 2
    assert scaling.step(111.0, both, 2, 1, 4) == 3


def test_replicas_without_work_go_one_at_a_time_after_much_longer() -> None:
    scaling = Scaling(RULE)
    assert after(scaling, CALM, 2, first=0, last=59) == 2
    assert scaling.step(60.0, CALM, 2, 1, 4) == 1


def test_a_replica_stays_whose_answers_the_others_could_hardly_take() -> None:
    assert after(Scaling(RULE), replace(CALM, running=5), 2, first=0, last=500) == 2


def test_bounds_win_over_the_load() -> None:
    assert after(Scaling(RULE), BUSY, 1, first=0, last=100, most=1) == 1
    assert Scaling(RULE).step(0.0, CALM, 2, 3, 4) == 3
    assert Scaling(RULE).step(0.0, CALM, 6, 1, 4) == 4


@given(
    st.lists(
        st.builds(
            ModelLoad,
            num_ready=st.integers(0, 4),
            running=st.integers(0, 40),
            waiting=st.integers(0, 9),
            queued_tokens=st.integers(0, 900),
            max_running=st.integers(0, 40),
            first_token_s=st.none() | st.floats(0, 9),
        ),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_whatever_the_load_is_the_number_stays_within_its_bounds_and_moves_by_one(
    loads: list[ModelLoad], replicas: int
) -> None:
    scaling, last_change = Scaling(RULE), -1.0e9
    for second, load in enumerate(loads):
        number = scaling.step(float(second), load, replicas, 1, 4)
        assert 1 <= number <= 4
        assert abs(number - replicas) <= 1
        if number != replicas:  # hysteresis: no two changes within the shorter time
            assert second - last_change >= RULE.up_after_s
            last_change = second
        replicas = number


@pytest.mark.parametrize("gap_s", [1.0, 5.0])
def test_a_load_that_alternates_around_the_threshold_changes_nothing(gap_s: float) -> None:
    scaling, now = Scaling(RULE), 0.0
    for number in range(200):
        load = BUSY if number % 2 else replace(BUSY, waiting=0, queued_tokens=0)
        assert scaling.step(now, load, 1, 1, 4) == 1
        now += gap_s
