"""Fixtures of the engine's tests: tiny checkpoints, written once in a test run."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest

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
