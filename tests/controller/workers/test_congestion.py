"""Verdicts on full workers last for a moment, and refusals are counted by model."""

from controller.workers.congestion import FULL_S, REMIND_S, Congestion


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_full_worker_is_full_for_a_moment_and_for_one_kind_of_work() -> None:
    clock = _Clock()
    congestion = Congestion(clock)
    congestion.note_full("w-1", "chat")
    assert congestion.is_full("w-1", "chat")
    assert not congestion.is_full("w-1", "battle")
    assert not congestion.is_full("w-2", "chat")
    clock.now += FULL_S * 1.01
    assert not congestion.is_full("w-1", "chat")


def test_a_place_that_became_free_ends_the_verdict() -> None:
    congestion = Congestion(_Clock())
    congestion.note_full("w-1", "chat")
    congestion.note_free("w-1")
    assert not congestion.is_full("w-1", "chat")


def test_the_store_is_reminded_seldom() -> None:
    clock = _Clock()
    congestion = Congestion(clock)
    assert congestion.unaware(["w-1", "w-2"], "battle") == ["w-1", "w-2"]
    assert congestion.unaware(["w-1", "w-2"], "battle") == []
    assert congestion.unaware(["w-1"], "chat") == ["w-1"]
    clock.now += REMIND_S * 1.01
    assert congestion.unaware(["w-1"], "battle") == ["w-1"]


def test_workers_and_models_that_are_gone_leave_nothing() -> None:
    congestion = Congestion(_Clock())
    congestion.note_full("w-1", "chat")
    for _ in range(1000):
        wait_s = congestion.refused("gone")
    assert wait_s > 1
    congestion.forget_all_but({"w-2"}, {"other"})
    assert not congestion.is_full("w-1", "chat")
    congestion.accepted("gone")
    assert congestion.refused("gone") < wait_s
