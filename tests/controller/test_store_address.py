"""URLs of stores and what is made of them: hosts, secrets, and sentences about what is wrong."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from controller.errors import ConfigurationError
from controller.store_address import StoreAddress, parse_address
from controller.store_config import StoreSettings


def test_a_sentinel_url_names_sentinels_service_and_database() -> None:
    address = parse_address("redis+sentinel://me:p%40ss@one,two:26000,[::1]:7/votes/3?sentinel_password=s")

    assert address.service is not None
    assert address.service.sentinels == (("one", 26379), ("two", 26000), ("::1", 7))
    assert (address.service.name, address.service.password) == ("votes", "s")
    assert (address.server, address.username, address.password) == ("redis:///3", "me", "p@ss")
    assert not address.is_encrypted
    assert parse_address("rediss+sentinel://one/votes").is_encrypted


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6380/2", "redis://host:6380/2"),
        ("rediss://:secret@host", "rediss://host"),
        ("unix:///run/store.sock", "unix:///run/store.sock"),
        (
            "redis+sentinel://u:secret@one,two/votes?sentinel_password=secret",
            "redis+sentinel://one:26379,two:26379/votes",
        ),
    ],
)
def test_no_secret_is_shown(url: str, shown: str) -> None:
    address = parse_address(url, password="secret", sentinel_password="secret")

    assert address.shown == shown
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("localhost:6379", "is no URL"),
        ("http://host", "cannot be used"),
        ("redis+sentinel://one", "no sentinel or no service"),
        ("redis+sentinel:///votes", "no sentinel or no service"),
        ("redis+sentinel://one:x/votes", "a port or database that is no number"),
        ("redis+sentinel://one/votes/x", "a port or database that is no number"),
        ("redis+sentinel://one/votes?db=1", "'db' is not a parameter"),
    ],
)
def test_what_is_wrong_is_said(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        parse_address(url)


def test_settings_take_secrets_from_files_and_keep_them_to_themselves(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("redis+sentinel://one/votes\n")
    (tmp_path / "password").write_text("hush\n")

    settings = StoreSettings(
        redis_url_file=tmp_path / "url", redis_password_file=tmp_path / "password", sentinel_password=SecretStr("other")
    )

    address = settings.store_address()
    assert address.service is not None
    assert (address.password, address.service.password) == ("hush", "other")
    assert settings.needed_replicas == 1  # a fail-over loses what no replica has
    assert StoreSettings().needed_replicas == 0
    assert "hush" not in repr(settings)
    assert isinstance(address, StoreAddress)
