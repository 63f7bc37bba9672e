"""Which devices have kernels that are launched while the ones before them run."""

import pytest
import torch

from engine.kernels.gpu import dependent_launch
from engine.kernels.gpu.dependent_launch import launch_options, options_for, turn_off


@pytest.mark.parametrize(("architecture", "waits"), [(80, False), (89, False), (90, True), (100, True), (120, True)])
def test_it_begins_with_hopper(architecture: int, waits: bool) -> None:
    options = options_for(architecture)
    assert options["WAITS"] is waits
    assert options.get("launch_pdl", False) is waits


def test_the_interpreter_does_without() -> None:
    assert launch_options(torch.device("cpu")) == {"WAITS": False}


FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.fixture
def hoppers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependent_launch, "_options", {})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


@pytest.mark.usefixtures("hoppers")
def test_they_are_turned_off_for_one_device() -> None:
    assert launch_options(FIRST) == launch_options(SECOND) == {"WAITS": True, "launch_pdl": True}
    turn_off(FIRST)
    assert launch_options(FIRST) == {"WAITS": False}
    assert launch_options(SECOND)["WAITS"]
    turn_off(torch.device("cuda"))
    assert launch_options(SECOND) == {"WAITS": False}


@pytest.mark.usefixtures("hoppers")
@pytest.mark.parametrize(("value", "waits"), [("0", False), ("false", False), ("OFF", False), ("1", True), ("", True)])
def test_they_are_turned_off_by_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, waits: bool) -> None:
    monkeypatch.setenv("AGON_DEPENDENT_LAUNCH", value)
    assert launch_options(FIRST)["WAITS"] is waits
