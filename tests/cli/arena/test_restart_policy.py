"""Delays between restarts."""

import pytest

from cli.arena.restart_policy import RestartPolicy


def steady(**changes: float) -> RestartPolicy:
    return RestartPolicy(**{"first_delay_s": 1.0, "max_delay_s": 5.0, "jitter": 0.0, **changes})  # type: ignore[arg-type]


def test_delays_double_up_to_the_ceiling_and_never_end() -> None:
    policy = steady()
    delays = [policy.delay_after_death(ready_s=0.0) for _ in range(100)]
    assert delays[:5] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert set(delays[5:]) == {5.0}


def test_a_process_that_is_killed_now_and_then_starts_again_without_growing_delays() -> None:
    policy = steady(forgiven_s=3.0)
    assert {policy.delay_after_death(ready_s=4.0) for _ in range(50)} <= {1.0, 2.0}


def test_after_a_long_outage_half_a_minute_of_health_clears_the_record() -> None:
    policy = RestartPolicy(jitter=0.0)
    for _ in range(1000):
        policy.delay_after_death(ready_s=0.0)
    assert policy.delay_after_death(ready_s=30.0) == policy.first_delay_s


def test_jitter_only_shortens_a_delay() -> None:
    policy = steady(first_delay_s=5.0, jitter=0.2)
    delays = [policy.delay_after_death(ready_s=0.0) for _ in range(200)]
    assert 4.0 <= min(delays) < max(delays) <= 5.0
    assert max(delays) - min(delays) == pytest.approx(1.0, abs=0.3)
