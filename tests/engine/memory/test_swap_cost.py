"""Whether swapping or recomputing is cheaper, from measured times."""

import pytest

from engine.memory.swap_cost import CostMeter, SwapCost

pytestmark = pytest.mark.measured_swap_costs


def cost_of(meter: CostMeter) -> SwapCost:
    cost = meter.cost()
    assert cost is not None
    return cost


def test_the_cheaper_way_depends_on_bytes_and_tokens() -> None:
    cost = SwapCost(seconds_per_byte=1e-9, seconds_per_token=1e-4)
    assert cost.is_swap_cheaper(num_bytes=10**6, num_moves=1, num_tokens=1000)
    assert not cost.is_swap_cheaper(num_bytes=10**9, num_moves=1, num_tokens=1000)


def test_nothing_is_known_before_both_were_measured() -> None:
    meter = CostMeter()
    assert meter.cost() is None
    meter.note_moves(1000, 0.001)
    assert meter.cost() is None
    meter.note_step(1, 0.01)
    assert meter.cost() is not None


def test_a_token_costs_what_one_more_of_them_adds_to_a_step() -> None:
    meter = CostMeter()
    meter.note_moves(1000, 0.001)
    for num_tokens in [1] * 500 + [512, 1, 256, 1]:
        meter.note_step(num_tokens, 0.02 + num_tokens * 1e-4)
    assert cost_of(meter).seconds_per_token == pytest.approx(1e-4, rel=1e-3)


def test_steps_of_one_size_tell_the_mean() -> None:
    meter = CostMeter()
    meter.note_moves(1000, 0.001)
    for _ in range(1000):
        meter.note_step(8, 0.04)
    assert cost_of(meter).seconds_per_token == pytest.approx(0.005)


def test_a_byte_costs_what_it_cost_lately() -> None:
    meter = CostMeter()
    meter.note_step(1, 0.01)
    for seconds in [1.0] * 20 + [0.001] * 2000:
        meter.note_moves(1000, seconds)
    assert cost_of(meter).seconds_per_byte == pytest.approx(1e-6, rel=1e-3)
