"""Delays between restarts, and when a process is given up."""

from cli.arena.restart_policy import RestartPolicy


def test_delays_double_up_to_the_limit() -> None:
    policy = RestartPolicy(first_delay_s=1.0, max_delay_s=5.0, max_quick_deaths=10)
    assert [policy.delay_after_death(ready_s=0.0) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_gives_up_after_the_allowed_number_of_quick_deaths() -> None:
    policy = RestartPolicy(max_quick_deaths=3)
    delays = [policy.delay_after_death(ready_s=0.0) for _ in range(3)]
    assert delays[-1] is None
    assert None not in delays[:-1]


def test_a_stable_run_clears_the_record() -> None:
    policy = RestartPolicy(first_delay_s=1.0, stable_s=30.0, max_quick_deaths=3)
    policy.delay_after_death(ready_s=0.0)
    policy.delay_after_death(ready_s=0.0)
    assert policy.delay_after_death(ready_s=31.0) == 1.0
