"""The data directory: its lock, its secrets and their file modes."""

import json
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from cli.arena.data_dir import DataDir, Running
from cli.errors import CliError, DataDirInUse
from wire.releases import FORMAT

RUNNING = Running(pid=4711, webui_url="http://127.0.0.1:7860", controller_url="http://127.0.0.1:8100")


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    for name in ("AGON_WORKER_TOKEN", "AGON_ADMIN_TOKEN", "AGON_VOTER_KEY", "AGON_PROXY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    folder = DataDir(tmp_path / "data")
    folder.create()
    return folder


def test_only_the_user_may_enter(data_dir: DataDir) -> None:
    assert stat.S_IMODE(data_dir.path.stat().st_mode) == 0o700


def test_a_second_arena_is_told_who_runs_and_where(data_dir: DataDir) -> None:
    data_dir.lock(RUNNING)
    with pytest.raises(DataDirInUse, match=r"pid 4711, http://127\.0\.0\.1:7860"):
        DataDir(data_dir.path).lock(RUNNING)
    data_dir.unlock()


def test_an_unlocked_directory_can_be_locked_again_and_tells_nothing_old(data_dir: DataDir) -> None:
    data_dir.lock(RUNNING)
    data_dir.unlock()
    assert data_dir.running() is None
    second = DataDir(data_dir.path)
    second.lock(RUNNING)
    assert second.running() == RUNNING
    second.unlock()


def test_a_directory_of_a_newer_release_is_refused_and_stays_as_it_is(data_dir: DataDir) -> None:
    data_dir.lock(RUNNING)
    data_dir.unlock()
    kept = data_dir.path / "format.json"
    written = json.dumps(json.loads(kept.read_text()) | {"format": FORMAT + 1, "release": "9.0"})
    kept.write_text(written)

    with pytest.raises(CliError, match=rf"{data_dir.path} is kept in format {FORMAT + 1} by Agon 9\.0"):
        DataDir(data_dir.path).lock(RUNNING)

    assert kept.read_text() == written
    assert (data_dir.path / "agon.lock").read_text() == ""


@pytest.mark.parametrize("damaged", ["", "[]", '{"format": "x"}'])
def test_a_damaged_format_is_named_and_not_overwritten(data_dir: DataDir, damaged: str) -> None:
    (data_dir.path / "format.json").write_text(damaged)
    with pytest.raises(CliError, match=r"format\.json cannot be read"):
        data_dir.lock(RUNNING)


def test_what_a_killed_arena_left_in_its_lock_file_is_not_believed(data_dir: DataDir) -> None:
    (data_dir.path / "agon.lock").write_text(json.dumps(asdict(RUNNING)))
    assert data_dir.running() is None


def test_secrets_are_made_once_and_private(data_dir: DataDir) -> None:
    secrets = data_dir.secrets()
    assert DataDir(data_dir.path).secrets() == secrets
    assert stat.S_IMODE((data_dir.path / "secrets.json").stat().st_mode) == 0o600
    assert len(set(asdict(secrets).values())) == 4
    assert all(len(secret) >= 32 for secret in asdict(secrets).values())


def test_a_file_of_an_older_version_keeps_its_secrets_and_gets_the_new_one(data_dir: DataDir) -> None:
    old = {name: secret for name, secret in asdict(data_dir.secrets()).items() if name != "proxy_token"}
    (data_dir.path / "secrets.json").write_text(json.dumps(old))

    added = DataDir(data_dir.path).secrets()

    assert {name: getattr(added, name) for name in old} == old
    assert json.loads((data_dir.path / "secrets.json").read_text()) == asdict(added)
    assert len(added.proxy_token) >= 32


def test_the_environment_wins_over_stored_secrets_but_is_not_stored(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = data_dir.secrets()
    monkeypatch.setenv("AGON_ADMIN_TOKEN", "from-the-environment")
    assert data_dir.secrets().admin_token == "from-the-environment"
    assert json.loads((data_dir.path / "secrets.json").read_text())["admin_token"] == stored.admin_token


def test_a_broken_secrets_file_is_named(data_dir: DataDir) -> None:
    (data_dir.path / "secrets.json").write_text("{")
    with pytest.raises(CliError, match=r"secrets\.json"):
        data_dir.secrets()
