from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from model_worker.config import WorkerSettings
from model_worker.errors import BadSettings
from model_worker.main import read_settings

Make = Callable[..., WorkerSettings]


def test_model_may_carry_an_alias(make_settings: Make) -> None:
    settings = make_settings(model="poet=/models/llama")
    assert (settings.model_name, settings.model_path) == ("poet", "/models/llama")


def test_hub_id_without_alias_is_the_name(make_settings: Make) -> None:
    settings = make_settings(model="org/model-7b")
    assert (settings.model_name, settings.model_path) == ("org/model-7b", "org/model-7b")


def test_folder_without_alias_is_named_after_itself(make_settings: Make, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    settings = make_settings(model=str(tmp_path / "tiny"))
    assert (settings.model_name, settings.model_path) == ("tiny", str(tmp_path / "tiny"))


def test_gguf_file_without_alias_is_named_after_itself(make_settings: Make, tmp_path: Path) -> None:
    (tmp_path / "0f3a").touch()
    (tmp_path / "tiny.Q8_0.gguf").symlink_to(tmp_path / "0f3a")  # as in the cache of the hub
    assert make_settings(model=str(tmp_path / "tiny.Q8_0.gguf")).model_name == "tiny.Q8_0"


def test_lists_come_from_the_environment_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGON_MODEL", "echo")
    monkeypatch.setenv("AGON_CONTROLLER_URLS", "http://a:8100, http://b:8100")
    monkeypatch.setenv("AGON_WORKER_TOKEN", "secret")
    monkeypatch.setenv("AGON_API_KEYS", "one,two")
    settings = WorkerSettings()
    assert settings.controller_urls == ("http://a:8100", "http://b:8100")
    assert settings.key_texts == ("one", "two")


def test_secrets_may_come_from_files(make_settings: Make, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    (tmp_path / "keys").write_text("first\n\nsecond\n")
    settings = make_settings(worker_token_file=tmp_path / "token", api_keys_file=tmp_path / "keys")
    assert settings.token_text == "from-file"
    assert settings.key_texts == ("first", "second")


def test_secrets_do_not_show_in_the_representation(make_settings: Make) -> None:
    assert "hidden" not in repr(make_settings(worker_token="hidden-token", api_keys=("hidden-key",)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": ""},
        {"model": "no spaces=x"},
        {"controller_urls": ("not a url",)},
        {"controller_urls": ("ftp://host",)},
        {"controller_urls": ("http://c:1",), "worker_token": None},
        {"controller_urls": ("http://c:1",), "host": "0.0.0.0"},
        {"port": 70_000},
        {"model": "m=openai:o@ftp://other"},
        {"model": "m=openai:o@http://other/v1#key=k"},
        {"unknown_setting": 1},
    ],
)
def test_settings_that_cannot_work_are_refused(make_settings: Make, wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        make_settings(**wrong)


def test_flags_become_settings() -> None:
    flags = ["--model", "a=b", "--port", "0", "--threads", "2", "--tensor-parallel", "4", "--no-prefix-caching"]
    settings = read_settings(flags)
    assert (settings.model_name, settings.port) == ("a", 0)
    of_engine = settings.model_dump(include={"threads", "prefix_caching", "tensor_parallel"})
    assert of_engine == {"threads": 2, "prefix_caching": False, "tensor_parallel": 4}


def test_missing_model_is_named_in_the_error() -> None:
    with pytest.raises(BadSettings, match=r"--model \(AGON_MODEL\)"):
        read_settings([])


def test_unreadable_secret_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="nowhere"):
        read_settings(["--model", "m", "--worker-token-file", str(tmp_path / "nowhere")])
