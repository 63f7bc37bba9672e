"""A worker does not give a controller on another machine a URL that means that other machine."""

from collections.abc import Callable
from typing import Any

import pytest

from model_worker.advertised import check_advertised
from model_worker.errors import BadSettings
from model_worker.main import main

FOREIGN = "http://203.0.113.7:8100"  #: an address of documentation, which no machine has


@pytest.mark.parametrize(
    "given",
    [
        {"controller_urls": (FOREIGN,)},
        {"controller_urls": ("http://127.0.0.1:8100", FOREIGN)},
        {"controller_urls": (FOREIGN,), "host": "::1"},
        {"controller_urls": (FOREIGN,), "host": "0.0.0.0", "worker_url": "http://localhost:8200"},
    ],
)
def test_a_loopback_url_is_refused_towards_another_machine(
    make_settings: Callable[..., Any], given: dict[str, Any]
) -> None:
    with pytest.raises(BadSettings, match=r"203\.0\.113\.7 cannot reach this worker at .* give --host"):
        check_advertised(make_settings(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"controller_urls": ("http://127.0.0.1:8100",)},
        {"controller_urls": ("http://localhost:8100",)},
        {"controller_urls": (FOREIGN,), "host": "192.0.2.1"},
        {"controller_urls": (FOREIGN,), "worker_url": "http://worker-1:8200"},
        {},
    ],
)
def test_other_urls_are_taken(make_settings: Callable[..., Any], given: dict[str, Any]) -> None:
    check_advertised(make_settings(**given))


def test_a_worker_that_would_be_taken_for_another_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGON_WORKER_TOKEN", "worker-token-for-tests")
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    assert main(["--model", "m", "--engine", "echo", "--controller", FOREIGN]) == 2
    assert "AGON_WORKER_URL" in capsys.readouterr().err
