"""What the settings of all services share: secrets from files, TLS files, and variables that are none of ours."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings

import controller.config
import model_worker.config
import webui.config
from service_kit.settings import is_secret, problems, secret_names, secret_of

CERTIFICATES = Path(__file__).parents[1] / "certificates"
SERVICES: tuple[type[BaseSettings], ...] = (
    controller.config.Settings,
    model_worker.config.WorkerSettings,
    webui.config.Settings,
)
NEEDED: dict[type[BaseSettings], dict[str, Any]] = {model_worker.config.WorkerSettings: {"model": ("m",)}}


@pytest.fixture(autouse=True)
def _no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AGON_"):
            monkeypatch.delenv(name)


def make(service: type[BaseSettings]) -> Any:
    return service(**NEEDED.get(service, {}))


@pytest.mark.parametrize("service", SERVICES)
def test_every_secret_may_come_from_a_file(
    service: type[BaseSettings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = {name for name, field in service.model_fields.items() if is_secret(field)}
    assert secrets == set(secret_names(service.model_fields))
    for name in secrets:
        (tmp_path / name).write_text(f"redis://{name}-from-a-file\n")
        monkeypatch.setenv(f"AGON_{name.upper()}_FILE", str(tmp_path / name))
    settings = make(service)
    for name in secrets:
        value = getattr(settings, name)
        [value] = value if isinstance(value, tuple) else [value]
        assert getattr(value, "get_secret_value", lambda value=value: value)() == f"redis://{name}-from-a-file"
    assert "from-a-file" not in repr(settings)


@pytest.mark.parametrize("service", SERVICES)
def test_a_secret_file_that_cannot_be_read_is_named(
    service: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(iter(secret_names(service.model_fields)))
    monkeypatch.setenv(f"AGON_{name.upper()}_FILE", "/nowhere/secret")
    with pytest.raises(ValidationError) as refusal:
        make(service)
    assert any("AGON_" in said and "nowhere" in said for said in problems(refusal.value))


@pytest.mark.parametrize("service", SERVICES)
def test_variables_of_kubernetes_services_are_no_settings(
    service: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a Service named `agon`, and one named `agon-webui`."""
    links = {"PORT": "tcp://10.0.0.1:8100", "PORT_8100_TCP": "tcp://10.0.0.1:8100", "WEBUI_PORT": "tcp://10.0.0.2:7860"}
    for name, value in {**links, "SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "8100"}.items():
        monkeypatch.setenv(f"AGON_{name}", value)
    settings = make(service)
    assert getattr(settings, "port", 8200) == 8200
    assert getattr(settings, "webui_port", 7860) == 7860


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("cert", "key", "sentence"),
    [
        ("server.pem", None, "belong together"),
        ("server.pem", "other.key", "is not that of the certificate"),
        ("nowhere.pem", "server.key", "AGON_TLS_CERT_FILE: Path does not point to a file"),
    ],
)
def test_tls_files_that_cannot_be_used_are_refused(
    service: type[BaseSettings], cert: str, key: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGON_TLS_CERT_FILE", str(CERTIFICATES / cert))
    monkeypatch.setenv("AGON_TLS_KEY_FILE", "" if key is None else str(CERTIFICATES / key))
    with pytest.raises(ValidationError) as refusal:
        make(service)
    assert sentence in problems(refusal.value)[0]


def test_a_command_reads_a_secret_from_a_variable_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of the file\n")
    assert secret_of({"AGON_API_KEY": "k"}, "AGON_API_KEY") == "k"
    assert secret_of({"AGON_API_KEY_FILE": str(tmp_path / "key")}, "AGON_API_KEY") == "of the file"
    assert secret_of({}, "AGON_API_KEY") is None
    with pytest.raises(ValueError, match="AGON_API_KEY_FILE cannot be read"):
        secret_of({"AGON_API_KEY_FILE": "/nowhere"}, "AGON_API_KEY")
