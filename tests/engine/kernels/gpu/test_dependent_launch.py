"""Which devices have kernels that are launched while the ones before them run."""

import pytest
import torch

from engine.kernels.gpu.dependent_launch import launch_options, options_for


@pytest.mark.parametrize(("architecture", "waits"), [(80, False), (89, False), (90, True), (100, True), (120, True)])
def test_it_begins_with_hopper(architecture: int, waits: bool) -> None:
    options = options_for(architecture)
    assert options["WAITS"] is waits
    assert options.get("launch_pdl", False) is waits


def test_the_interpreter_does_without() -> None:
    assert launch_options(torch.device("cpu")) == {"WAITS": False}
