"""Fixtures of the engine's tests: tiny checkpoints, written once in a test run, and swap costs without a clock."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest

from engine.memory.swap_cost import CostMeter, SwapCost

if TYPE_CHECKING:
    from tests.engine.checkpoints import TinyModel


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> "Callable[[str], TinyModel]":
    """A variant's checkpoint by name, made on first use."""
    import torch

    from tests.engine.checkpoints import save

    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("checkpoints")
    return cache(lambda name: save(name, root / name))


@pytest.fixture
def swapping_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether pages are swapped depends on measured times, which a busy machine distorts."""
    monkeypatch.setattr(CostMeter, "cost", lambda meter: SwapCost(seconds_per_byte=0.0, seconds_per_token=1.0))
