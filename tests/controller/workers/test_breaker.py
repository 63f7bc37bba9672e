"""The circuit breaker, with a clock of the test."""

from controller.workers.breaker import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    RECENT_ANSWERS,
    CircuitBreaker,
)

WORKER = ("w-1", 7)
BEAT_MS = 5_000  # its last heartbeat


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _broken(clock: _Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(WORKER)
    return breaker


def test_a_worker_gets_no_work_after_failures_in_a_row() -> None:
    breaker = CircuitBreaker(_Clock())
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.failed(WORKER)
    assert breaker.allows(WORKER, BEAT_MS)

    breaker.failed(WORKER)

    assert not breaker.allows(WORKER, BEAT_MS)


def test_failures_that_one_caller_meets_count_once() -> None:
    breaker = CircuitBreaker(_Clock())
    for _ in range(10 * FAILURES_TO_OPEN):
        breaker.failed(WORKER, "10.0.0.1")
    assert breaker.allows(WORKER, BEAT_MS)

    for last in range(2, FAILURES_TO_OPEN + 1):
        breaker.failed(WORKER, f"10.0.0.{last}")

    assert not breaker.allows(WORKER, BEAT_MS)


def test_a_worker_that_completes_most_answers_keeps_its_requests() -> None:
    breaker = CircuitBreaker(_Clock())
    for caller in range(5 * RECENT_ANSWERS):
        breaker.succeeded(WORKER)
        breaker.failed(WORKER, f"10.0.0.{caller}")
        assert breaker.allows(WORKER, BEAT_MS)

    for caller in range(RECENT_ANSWERS):
        breaker.failed(WORKER, f"10.0.1.{caller}")

    assert not breaker.allows(WORKER, BEAT_MS)


def test_a_failed_probe_counts_whoever_sent_it() -> None:
    clock = _Clock()
    breaker = _broken(clock)
    clock.now += FIRST_PAUSE_S
    breaker.chosen(WORKER)

    breaker.failed(WORKER, "10.0.0.1")

    clock.now += 2 * FIRST_PAUSE_S - 0.1
    assert not breaker.allows(WORKER, BEAT_MS)


def test_a_lost_connection_now_and_then_is_forgiven() -> None:
    breaker = CircuitBreaker(_Clock())
    for _ in range(3 * FAILURES_TO_OPEN):
        breaker.failed(WORKER)
        breaker.succeeded(WORKER)

    assert breaker.allows(WORKER, BEAT_MS)


def test_after_the_pause_one_probe_is_sent_and_no_more() -> None:
    clock = _Clock()
    breaker = _broken(clock)
    clock.now += FIRST_PAUSE_S
    assert breaker.allows(WORKER, BEAT_MS)

    breaker.chosen(WORKER)

    assert not breaker.allows(WORKER, BEAT_MS)


def test_a_good_probe_closes_the_circuit() -> None:
    clock = _Clock()
    breaker = _broken(clock)
    clock.now += FIRST_PAUSE_S
    breaker.chosen(WORKER)

    breaker.succeeded(WORKER)

    assert breaker.allows(WORKER, BEAT_MS)


def test_pauses_grow_up_to_a_limit() -> None:
    clock = _Clock()
    breaker = _broken(clock)
    for _ in range(10):
        clock.now += LONGEST_PAUSE_S
        assert breaker.allows(WORKER, BEAT_MS)
        breaker.failed(WORKER)

    clock.now += LONGEST_PAUSE_S - 1
    assert not breaker.allows(WORKER, BEAT_MS)


def test_a_restarted_worker_starts_with_a_clean_record() -> None:
    assert _broken(_Clock()).allows((WORKER[0], WORKER[1] + 1), BEAT_MS)


def test_records_of_workers_that_are_gone_are_dropped() -> None:
    breaker = _broken(_Clock())

    breaker.forget_all_but(set())

    assert breaker.allows(WORKER, BEAT_MS)


def test_a_worker_that_refused_a_connection_gets_no_work_until_it_is_heard_of_again() -> None:
    breaker = CircuitBreaker(_Clock())

    breaker.refused(WORKER, BEAT_MS + 300)

    assert not breaker.allows(WORKER, BEAT_MS)
    assert not breaker.allows(WORKER, BEAT_MS + 300)
    assert breaker.allows(WORKER, BEAT_MS + 301)
    assert breaker.allows((WORKER[0], WORKER[1] + 1), BEAT_MS), "a new start of it"


def test_a_worker_that_answers_is_trusted_before_its_next_heartbeat() -> None:
    breaker = CircuitBreaker(_Clock())
    breaker.refused(WORKER, BEAT_MS + 300)

    breaker.succeeded(WORKER)

    assert breaker.allows(WORKER, BEAT_MS)
