"""Swap costs without a clock. Whether pages are swapped depends on measured times, which a busy machine distorts."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from engine.memory.swap_cost import CostMeter, SwapCost

_NOTHING = SwapCost(seconds_per_byte=0.0, seconds_per_token=1.0)


@contextmanager
def swapping_costs_nothing() -> Generator[None, None, None]:
    """Every preempted request is swapped where the mirror has room, whatever was measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CostMeter, "cost", lambda meter: _NOTHING)
        yield
