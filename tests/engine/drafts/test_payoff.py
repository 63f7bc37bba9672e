"""Verification that has not paid is left for a while, whatever was expected of it."""

from engine.drafts.payoff import ALLOWED_LOSS, FIRST_ALLOWANCE, LARGEST_ALLOWANCE, Payoff


def run(payoff: Payoff, num_steps: int, *, seconds: float, num_tokens: int, num_rows: int = 4) -> int:
    """Steps of an engine that verifies wherever it may; returns in how many it did. One without takes 1 s."""
    count = 0
    for number in range(num_steps):
        if number % 32 > 0 and not payoff.is_paused(num_rows):
            count += 1
            payoff.note_drafted(num_rows, num_tokens, seconds, 1.0)
        else:
            payoff.note_plain(num_rows, 1.0)
    return count


def test_what_pays_goes_on() -> None:
    assert run(Payoff(), 320, seconds=1.5, num_tokens=8) == 310


def test_what_does_not_pay_is_tried_seldom() -> None:
    payoff = Payoff()
    assert run(payoff, 2000, seconds=1.5, num_tokens=5) <= 6 * 8
    assert run(payoff, 4000, seconds=1.5, num_tokens=5) <= 5 * 8


def test_other_loads_are_not_concerned() -> None:
    payoff = Payoff()
    run(payoff, 100, seconds=1.5, num_tokens=34, num_rows=32)
    assert payoff.is_paused(33)
    assert not payoff.is_paused(4)


def test_what_begins_to_pay_is_found() -> None:
    payoff = Payoff()
    run(payoff, 300, seconds=1.5, num_tokens=5)
    assert run(payoff, 1000, seconds=1.5, num_tokens=8) > 600


def test_no_loss_of_one_step_is_so_large_that_the_account_does_not_stop_it() -> None:
    """A step that costs as 20 of those without, and another kind of load each time."""
    payoff, lost = Payoff(), 0.0
    for number in range(6000):
        num_rows = 1 << (number % 5)
        if payoff.is_paused(num_rows):
            payoff.note_plain(num_rows, 1.0)
        else:
            payoff.note_drafted(num_rows, num_rows, 20.0, 1.0)
            lost += 19.0
    assert 0 < lost <= FIRST_ALLOWANCE + 19.0 + ALLOWED_LOSS * 6000


def test_rounds_that_find_nothing_are_counted_too() -> None:
    payoff, lost = Payoff(), 0.0
    for _ in range(3000):
        if not payoff.is_paused(1):
            payoff.note_fruitless(0.1, 1.0)
            lost += 0.1
        payoff.note_plain(1, 1.0)
    assert lost <= FIRST_ALLOWANCE + 0.1 + ALLOWED_LOSS * 3000


def test_gains_are_not_saved_for_ever() -> None:
    payoff = Payoff()
    run(payoff, 5000, seconds=1.0, num_tokens=8)
    lost = 0.0
    while not payoff.is_used_up:
        payoff.note_drafted(4, 4, 3.0, 1.0)
        lost += 2.0
    assert lost <= LARGEST_ALLOWANCE + 2.0
