"""Verification that has not paid is left for a while, whatever was expected of it."""

from engine.drafts.payoff import Payoff


def run(payoff: Payoff, num_steps: int, *, seconds: float, num_tokens: int, num_rows: int = 4) -> int:
    """Steps of an engine that verifies wherever it may; returns in how many it did."""
    count = 0
    for number in range(num_steps):
        has_drafts = number % 32 > 0 and not payoff.is_paused(num_rows)
        count += has_drafts
        taken, tokens = (seconds, num_tokens) if has_drafts else (1.0, num_rows)
        payoff.note(num_rows, tokens, taken, has_drafts=has_drafts)
    return count


def test_what_pays_goes_on() -> None:
    assert run(Payoff(), 320, seconds=1.5, num_tokens=8) == 310


def test_what_does_not_pay_is_tried_seldom() -> None:
    payoff = Payoff()
    assert run(payoff, 2000, seconds=1.5, num_tokens=5) <= 6 * 8
    assert run(payoff, 4000, seconds=1.5, num_tokens=5) <= 5 * 8


def test_other_loads_are_not_concerned() -> None:
    payoff = Payoff()
    run(payoff, 100, seconds=1.5, num_tokens=5, num_rows=32)
    assert payoff.is_paused(33)
    assert not payoff.is_paused(4)


def test_what_begins_to_pay_is_found() -> None:
    payoff = Payoff()
    run(payoff, 300, seconds=1.5, num_tokens=5)
    assert run(payoff, 1000, seconds=1.5, num_tokens=8) > 600


def test_a_single_interruption_stops_nothing() -> None:
    payoff = Payoff()
    run(payoff, 100, seconds=1.0, num_tokens=8)
    payoff.note(4, 8, 90.0, has_drafts=True)
    assert run(payoff, 31, seconds=1.0, num_tokens=8) == 30
