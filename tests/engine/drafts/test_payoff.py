"""Verification that has not paid is left for a while, whatever was expected of it."""

from dataclasses import dataclass, field

import pytest

from engine.drafts.payoff import ALLOWED_LOSS, FIRST_ALLOWANCE, LARGEST_ALLOWANCE, Payoff


@dataclass
class Engine:
    """Verifies wherever it may. A step without proposals takes 1 s."""

    payoff: Payoff = field(default_factory=Payoff)
    step: int = 0
    next_round: int = 0

    def run(self, num_steps: int, *, seconds: float, num_tokens: int, num_rows: int = 4) -> int:
        """In how many steps it verified."""
        count = 0
        for _ in range(num_steps):
            self.step += 1
            if self.step % 32 and self.may_propose(num_rows):
                count += 1
                self.note_drafted(num_rows, num_tokens, seconds)
            else:
                self.payoff.note_plain(1.0)
        return count

    def may_propose(self, num_rows: int) -> bool:
        return self.step >= self.next_round and not self.payoff.is_paused(num_rows, self.step)

    def note_drafted(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        self.payoff.note_drafted(num_rows, num_tokens, seconds, 1.0, self.step)
        self.note_closed()

    def note_closed(self) -> None:
        num_closed = self.payoff.num_closed_steps(1.0)
        if num_closed:
            self.next_round = self.step + 1 + num_closed


def test_what_pays_goes_on() -> None:
    assert Engine().run(320, seconds=1.5, num_tokens=8) == 310


def test_what_does_not_pay_is_tried_seldom() -> None:
    engine = Engine()
    assert engine.run(2000, seconds=1.5, num_tokens=5) <= 6 * 8
    assert engine.run(4000, seconds=1.5, num_tokens=5) <= 5 * 8


def test_other_loads_are_not_concerned() -> None:
    engine = Engine()
    engine.run(100, seconds=1.5, num_tokens=34, num_rows=32)
    assert not engine.may_propose(33)
    assert engine.may_propose(4)


def test_what_begins_to_pay_is_found() -> None:
    engine = Engine()
    engine.run(300, seconds=1.5, num_tokens=5)
    assert engine.run(1000, seconds=1.5, num_tokens=8) > 600


def test_no_loss_of_one_step_is_so_large_that_the_account_does_not_stop_it() -> None:
    """A step that costs as 20 of those without, and another kind of load each time."""
    engine, lost = Engine(), 0.0
    for number in range(6000):
        engine.step, num_rows = number, 1 << (number % 5)
        if engine.may_propose(num_rows):
            engine.note_drafted(num_rows, num_rows, 20.0)
            lost += 19.0
        else:
            engine.payoff.note_plain(1.0)
    assert 0 < lost <= FIRST_ALLOWANCE + 19.0 + ALLOWED_LOSS * 6000


def test_rounds_that_find_nothing_are_counted_too() -> None:
    engine, lost = Engine(), 0.0
    for number in range(3000):
        engine.step = number
        spent_s = 0.1 * engine.may_propose(1)
        engine.payoff.note_plain(1.0, spent_s)
        engine.note_closed()
        lost += spent_s
    assert lost <= FIRST_ALLOWANCE + 0.1 + ALLOWED_LOSS * 3000


def test_steps_that_pass_together_earn_as_much_as_one_by_one() -> None:
    together, one_by_one = Payoff(), Payoff()
    for payoff in (together, one_by_one):
        payoff.note_drafted(1, 1, 101.0, 1.0, 0)
    num_closed = (100 - FIRST_ALLOWANCE + 2) / ALLOWED_LOSS
    assert together.num_closed_steps(1.0) == num_closed
    together.note_plain(1.0, num_steps=5000)
    for _ in range(5000):
        one_by_one.note_plain(1.0)
    assert together.num_closed_steps(1.0) == num_closed - 5000
    assert one_by_one.num_closed_steps(1.0) == pytest.approx(num_closed - 5000, abs=1)


def test_gains_are_not_saved_for_ever() -> None:
    engine = Engine()
    engine.run(5000, seconds=1.0, num_tokens=8)
    lost = 0.0
    while not engine.payoff.num_closed_steps(1.0):
        engine.note_drafted(4, 4, 3.0)
        lost += 2.0
    assert lost <= LARGEST_ALLOWANCE + 2.0
