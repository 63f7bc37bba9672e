"""Fixtures of the engine's tests: tiny checkpoints, written once in a test run, swap costs without a clock, and short
prompts that are narrowed."""

from collections.abc import Callable, Generator
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.engine.swap_costs import swapping_costs_nothing

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


@pytest.fixture(autouse=True)
def _swapping_costs_nothing(request: pytest.FixtureRequest) -> Generator[None, None, None]:
    """Except where a test says what was measured (`measured_swap_costs`)."""
    if request.node.get_closest_marker("measured_swap_costs"):
        yield
        return
    with swapping_costs_nothing():
        yield


@pytest.fixture(autouse=True)
def _prompts_of_tests_are_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are much shorter than those that are worth it; those in small chunks stay whole."""
    from engine.attention import narrowing

    monkeypatch.setattr(narrowing, "MIN_ROWS_SAVED", 8)
