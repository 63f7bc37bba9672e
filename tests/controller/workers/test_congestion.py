"""Verdicts on full workers last for a moment, and refusals are counted by model."""

from controller.workers.congestion import FULL_S, REMIND_S, Congestion
from wire.ids import WorkerId

ONE, TWO = WorkerId("w-1"), WorkerId("w-2")


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_full_worker_is_full_for_a_moment_and_for_one_kind_of_work() -> None:
    clock = _Clock()
    congestion = Congestion(clock)
    congestion.note_full(ONE, "chat")
    assert congestion.is_full(ONE, "chat")
    assert not congestion.is_full(ONE, "battle")
    assert not congestion.is_full(TWO, "chat")
    clock.now += FULL_S * 1.01
    assert not congestion.is_full(ONE, "chat")


def test_a_place_that_became_free_ends_the_verdict() -> None:
    congestion = Congestion(_Clock())
    congestion.note_full(ONE, "chat")
    congestion.note_free(ONE)
    assert not congestion.is_full(ONE, "chat")


def test_the_store_is_reminded_seldom() -> None:
    clock = _Clock()
    congestion = Congestion(clock)
    assert congestion.unaware([ONE, TWO], "battle") == [ONE, TWO]
    assert congestion.unaware([ONE, TWO], "battle") == []
    assert congestion.unaware([ONE], "chat") == [ONE]
    clock.now += REMIND_S * 1.01
    assert congestion.unaware([ONE], "battle") == [ONE]


def test_workers_and_models_that_are_gone_leave_nothing() -> None:
    congestion = Congestion(_Clock())
    congestion.note_full(ONE, "chat")
    for _ in range(1000):
        wait_s = congestion.refused("gone")
    assert wait_s > 1
    congestion.forget_all_but({TWO}, {"other"})
    assert not congestion.is_full(ONE, "chat")
    congestion.accepted("gone")
    assert congestion.refused("gone") < wait_s
