"""Settings from the environment and from secret files."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from controller.__main__ import main
from controller.app import create_app
from controller.config import Settings
from controller.errors import ConfigurationError

TOKENS: dict[str, Any] = {"worker_token": "w" * 20, "admin_token": "a" * 20}


def test_a_controller_without_tokens_refuses_to_start_and_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        create_app(Settings(admin_token=SecretStr("a" * 20)))

    assert "AGON_WORKER_TOKEN" in str(refusal.value)


def test_the_process_without_tokens_ends_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AGON_WORKER_TOKEN", raising=False)

    assert main(["--port", "1"]) == 2
    assert "AGON_WORKER_TOKEN must be set" in capsys.readouterr().err


def test_a_path_prefix_that_is_an_own_path_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="AGON_ROOT_PATH: the controller itself has the path"):
        create_app(Settings(**TOKENS, root_path="/arena"))


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        create_app(Settings(worker_token=SecretStr("short"), admin_token=SecretStr("a" * 20)))


def test_one_token_for_two_purposes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="differ"):
        create_app(Settings(worker_token=SecretStr("x" * 20), admin_token=SecretStr("x" * 20)))


def test_secrets_are_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t" * 32 + "\n")
    (tmp_path / "keys").write_text("first\nsecond\n")
    monkeypatch.setenv("AGON_WORKER_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AGON_API_KEYS_FILE", str(tmp_path / "keys"))

    settings = Settings()

    assert settings.worker_token.get_secret_value() == "t" * 32
    assert settings.api_keys == ("first", "second")


def test_a_missing_secret_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGON_ADMIN_TOKEN_FILE", "/nowhere/token")

    with pytest.raises(ValidationError, match="AGON_ADMIN_TOKEN_FILE"):
        Settings()


def test_lists_are_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGON_API_KEYS", "one, two,")
    monkeypatch.setenv("AGON_TRUSTED_PROXIES", "10.0.0.0/8,::1/128")

    settings = Settings()

    assert settings.api_keys == ("one", "two")
    assert [str(network) for network in settings.trusted_proxies] == ["10.0.0.0/8", "::1/128"]


def test_the_store_is_found_under_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://one")
    assert Settings().redis_url == "redis://one"
    monkeypatch.setenv("AGON_REDIS_URL", "redis://two")
    assert Settings().redis_url == "redis://two"


def test_no_secret_shows_in_the_text_of_the_settings() -> None:
    settings = Settings(**TOKENS, api_keys=("the-key",), voter_key=SecretStr("the-voter-key"))

    for secret in (*TOKENS.values(), "the-key", "the-voter-key"):
        assert secret not in repr(settings)


@pytest.mark.parametrize("token", ["short", TOKENS["admin_token"]])
def test_a_proxy_token_must_be_long_and_differ_from_the_others(token: str) -> None:
    with pytest.raises(ConfigurationError):
        Settings(**TOKENS, proxy_token=SecretStr(token)).require_tokens()


def test_every_setting_says_what_it_sets() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
