"""Which architectures are served, and that documentation and tests follow from the registry."""

import runpy
from pathlib import Path

import pytest

from engine.errors import CheckpointError
from engine.models.config_reader import ConfigReader
from engine.models.registry import ARCHITECTURES, architecture_of
from tests.engine.checkpoints import VARIANTS

ROOT = Path(__file__).parents[3]


def test_the_documentation_has_the_table_of_the_registry() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    written = runpy.run_path(str(ROOT / "docs" / "models_table.py"))["with_table"](page)
    assert page == written, "run `make pages`"


def test_every_architecture_has_a_tiny_checkpoint_and_every_checkpoint_an_architecture() -> None:
    assert {architecture for architecture, _ in VARIANTS.values()} == set(ARCHITECTURES)


def test_the_error_for_an_unknown_architecture_says_where_the_served_ones_are_listed() -> None:
    with pytest.raises(CheckpointError, match=r"no code for architecture \['Nothing'\]; docs/models.md lists the \d+ "):
        architecture_of(ConfigReader({"architectures": ["Nothing"]}))
