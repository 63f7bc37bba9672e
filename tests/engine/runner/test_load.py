"""Which device serves, and what is said where it cannot."""

import logging

import pytest
import torch

from engine.errors import CheckpointError
from engine.runner.load import choose_device


@pytest.fixture
def _old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Tesla T4")


@pytest.mark.usefixtures("_old_gpu")
def test_a_gpu_that_is_too_old_is_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CheckpointError, match=r"Tesla T4 has compute capability 7\.5; 8\.0 \(A100, RTX 30\)"):
        choose_device("cuda")
    with caplog.at_level(logging.WARNING):
        assert choose_device("auto") == torch.device("cpu")
    assert "Tesla T4 has compute capability 7.5" in caplog.text


@pytest.mark.usefixtures("_old_gpu")
def test_a_newer_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 0)
