"""Which architectures are served, and that the documentation says so."""

from pathlib import Path

import pytest

from engine.errors import CheckpointError
from engine.models.config_reader import ConfigReader
from engine.models.registry import ARCHITECTURES, architecture_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "models.md"


def test_the_documentation_lists_exactly_the_architectures_that_are_served() -> None:
    rows = [line.split("`")[1] for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(ARCHITECTURES)


def test_an_unknown_architecture_is_told_what_is_served() -> None:
    with pytest.raises(CheckpointError, match=r"no code for architecture \['Nothing'\]; supported: .*LlamaForCausalLM"):
        architecture_of(ConfigReader({"architectures": ["Nothing"]}))
