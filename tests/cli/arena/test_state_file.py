"""The supervisor's state on disk: complete at any moment, also on a full disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.arena.child import Child, ChildSpec, ChildState
from cli.arena.restart_policy import RestartPolicy
from cli.arena.state_file import StateFile
from cli.arena.supervisor import Supervisor
from wire.probes import ProcessList

MakeSpec = Callable[..., ChildSpec]


@pytest.fixture
def child(make_spec: MakeSpec, news: Any) -> Child:
    return Child(make_spec("store"), news, RestartPolicy())


def read(path: Path) -> list[tuple[str, str, int]]:
    listed = ProcessList.model_validate_json(path.read_bytes())
    return [(process.name, process.state, process.restarts) for process in listed.processes]


@contextmanager
def no_new_files(folder: Path) -> Iterator[None]:
    """As on a full disk, a file cannot get new blocks: here because its name is taken by a folder."""
    taken = folder / "processes.new"
    taken.mkdir()
    yield
    taken.rmdir()


def test_it_says_how_every_process_is(tmp_path: Path, child: Child) -> None:
    file = StateFile(tmp_path / "processes.json")
    file.write([child])
    child.num_restarts = 3
    child.state = ChildState.BACKING_OFF
    file.write([child])
    assert read(tmp_path / "processes.json") == [("store", "restarting", 3)]
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_a_new_file_the_old_one_is_overwritten(tmp_path: Path, child: Child) -> None:
    file = StateFile(tmp_path / "processes.json")
    file.write([child])
    size = (tmp_path / "processes.json").stat().st_size
    with no_new_files(tmp_path):
        child.state = ChildState.READY
        file.write([child])
    assert read(tmp_path / "processes.json") == [("store", "ready", 0)]
    assert (tmp_path / "processes.json").stat().st_size == size


def test_a_disk_that_refuses_everything_stops_nothing(tmp_path: Path, child: Child) -> None:
    file = StateFile(tmp_path / "processes.json")
    with no_new_files(tmp_path):
        file.write([child])
    assert not (tmp_path / "processes.json").exists()
    file.write([child])
    assert read(tmp_path / "processes.json") == [("store", "waiting", 0)]


async def test_every_change_of_a_process_is_written(make_spec: MakeSpec, news: Any, tmp_path: Path) -> None:
    file = StateFile(tmp_path / "processes.json")
    supervisor = Supervisor([[make_spec("store")], [make_spec("controller")]], news, file.write)
    await supervisor.start()
    assert ("store", "ready", 0) in read(tmp_path / "processes.json")
    await supervisor.stop()
    assert read(tmp_path / "processes.json") == [("store", "stopped", 0), ("controller", "stopped", 0)]
