from model_worker.liveness import Liveness
from wire.workers import Load


def test_engine_without_work_is_alive_however_long_it_rests() -> None:
    liveness = Liveness(stalled_s=10)
    assert all(liveness.is_moving(Load(steps_total=5), now) for now in (0.0, 100.0, 10_000.0))


def test_engine_whose_steps_stand_still_under_work_is_stalled() -> None:
    liveness = Liveness(stalled_s=10)
    load = Load(steps_total=5, waiting=1)
    assert [liveness.is_moving(load, now) for now in (0.0, 9.0, 11.0)] == [True, True, False]


def test_engine_that_moves_again_is_alive_again() -> None:
    liveness = Liveness(stalled_s=10)
    liveness.is_moving(Load(steps_total=5, running=1), 0.0)
    assert not liveness.is_moving(Load(steps_total=5, running=1), 20.0)
    assert liveness.is_moving(Load(steps_total=6, running=1), 21.0)


def test_work_that_has_just_arrived_is_given_time() -> None:
    liveness = Liveness(stalled_s=10)
    liveness.is_moving(Load(steps_total=5), 100.0)
    assert liveness.is_moving(Load(steps_total=5, running=1), 109.0)
