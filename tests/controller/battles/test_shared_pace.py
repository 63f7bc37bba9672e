"""Both sides are shown at one speed, whatever the speeds of their models are."""

import pytest

from controller.battles.shared_pace import PATIENCE_S, STEP_S, SharedPace
from wire.battles import SIDES, Side

SPEED = 100.0
TICK_S = 0.05


class _Watch:
    """A pace with a clock of its own: text arrives as the test says, and is looked for at every tick."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pace = SharedPace(SPEED, clock=lambda: self.now)
        self.shown: dict[Side, str] = {"a": "", "b": ""}
        self.log: list[tuple[float, str, int]] = []  #: seconds, side, characters

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now += TICK_S
            for side, text in self.pace.take().items():
                self.shown[side] += text
                self.log.append((round(self.now - 1000, 3), side, len(text)))

    def timing(self, side: Side) -> list[tuple[float, int]]:
        return [(at, number) for at, of, number in self.log if of == side]


def test_a_quick_and_a_slow_side_are_shown_alike() -> None:
    seen = []
    for quick in SIDES:
        slow: Side = "b" if quick == "a" else "a"
        watch = _Watch()
        watch.pace.add(quick, "q" * 500)
        watch.pace.end(quick)
        for _ in range(100):  # 40 characters a second
            watch.pace.add(slow, "s" * 4)
            watch.run(0.1)
        watch.pace.add(slow, "s" * 100)
        watch.pace.end(slow)
        watch.run(20)
        assert watch.shown == {quick: "q" * 500, slow: "s" * 500}
        assert watch.timing("a") == watch.timing("b")
        seen.append(watch.timing("a"))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("first_text_s", [0.02, 0.1, 0.4])
def test_both_begin_on_the_same_step_however_soon_they_are_ready(first_text_s: float) -> None:
    watch = _Watch()
    watch.pace.add("a", "x" * 200)
    watch.run(first_text_s)
    watch.pace.add("b", "y" * 200)
    watch.run(3)
    assert STEP_S <= watch.log[0][0] <= STEP_S + 2 * TICK_S
    assert watch.timing("a") == watch.timing("b")


def test_the_set_speed_is_kept() -> None:
    watch = _Watch()
    for side in SIDES:
        watch.pace.add(side, "x" * 1000)
    watch.run(STEP_S + 4)
    for side in SIDES:
        assert 380 <= len(watch.shown[side]) <= 400


def test_the_longer_answer_does_not_jump_when_the_slower_one_has_ended() -> None:
    """A jump would tell that the shorter answer's model was the slow one."""
    rates = []
    for slow_one_ends_first in (True, False):
        watch = _Watch()
        short, long = SIDES
        slow = short if slow_one_ends_first else long
        watch.pace.add(long if slow is short else short, "x" * (300 if slow is short else 100))
        if slow is long:
            watch.pace.end(short)
        else:
            watch.pace.end(long)
        for _ in range(50):
            watch.pace.add(slow, "s" * 2)  # 20 characters a second
            watch.run(0.1)
        if slow is long:
            for _ in range(100):
                watch.pace.add(slow, "s" * 2)
                watch.run(0.1)
        watch.pace.end(slow)
        watch.run(60)
        assert (len(watch.shown[short]), len(watch.shown[long])) == (100, 300)
        tail = watch.timing(long)
        middle = [at for at, _ in tail]
        rates.append(200 / (middle[-1] - watch.timing(short)[-1][0]))
    assert max(rates) < SPEED / 2
    assert max(rates) < 2 * min(rates)


def test_a_side_that_is_silent_for_very_long_is_not_waited_for() -> None:
    watch = _Watch()
    watch.pace.add("a", "x" * 100)
    watch.run(PATIENCE_S - 1)
    assert watch.shown["a"] == ""
    watch.run(5)
    assert watch.shown["a"] == "x" * 100


def test_a_side_that_thinks_is_waited_for_however_long_it_does() -> None:
    watch = _Watch()
    watch.pace.add("a", "x" * 100)
    watch.pace.end("a")
    for _ in range(10):
        watch.pace.think("b")
        watch.run(PATIENCE_S / 2)
    assert watch.shown == {"a": "", "b": ""}
    watch.pace.add("b", "y" * 100)
    watch.run(2)
    assert watch.shown == {"a": "x" * 100, "b": "y" * 100}
    assert {size for _, side, size in watch.log if side == "a"} == {size for _, side, size in watch.log if side == "b"}


def test_a_restarted_side_shows_nothing_of_its_first_model() -> None:
    watch = _Watch()
    watch.pace.add("a", "first")
    watch.pace.end("a")
    watch.pace.restart("a")
    watch.pace.add("a", "second " * 20)
    watch.pace.add("b", "other")
    watch.pace.end("b")
    watch.run(1)
    watch.pace.end("a")
    watch.run(3)
    assert watch.shown == {"a": "second " * 20, "b": "other"}


def test_what_is_cut_is_what_was_not_shown() -> None:
    watch = _Watch()
    for side in SIDES:
        watch.pace.add(side, "x" * 500)
    watch.run(2)
    for side in SIDES:
        assert watch.pace.cut(side) == 500 - len(watch.shown[side])
        assert not watch.pace.has_waiting(side)
