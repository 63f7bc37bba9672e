"""A large journal is opened without being read: its remembered position is believed only if it fits, and damage before
it is found afterwards."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.errors import JournalDamaged
from controller.votes.journal import journal_file
from controller.votes.journal.journal_file import JournalFile, read_entries, scan
from controller.votes.journal.scan_position import position_file
from controller.votes.vote_log import LogEntry
from tests.controller.support.arena import eventually
from tests.controller.support.running import StoreProcess
from tests.controller.votes.journal.support import journal_arena, voted


@pytest.fixture(autouse=True)
def remember_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "REMEMBER_EVERY", 2)


def _entries(count: int, first: int = 1) -> list[LogEntry]:
    return [
        LogEntry(f"{1000 + number}-0", f"battle-{number}", number, f'{{"battle_id":{number}}}', None)
        for number in range(first, first + count)
    ]


def _written(folder: Path, count: int = 5) -> Path:
    file = JournalFile.open(folder)
    file.require_arena("arena-1")
    for entry in _entries(count):
        file.append([entry], position=entry.vote_id)
    file.close()
    return file.path


def _change_line(path: Path, number: int) -> None:
    """Another byte in the record of a line, counted from 1."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(b"battle", b"bettle", 1)
    path.write_bytes(b"".join(lines))


def test_a_journal_that_is_opened_at_its_position_goes_on_like_one_that_was_read(tmp_path: Path) -> None:
    path = _written(tmp_path)
    assert json.loads(position_file(path).read_text())["num_votes"] == 4
    file = JournalFile.open(tmp_path)
    assert (file.arena, file.num_votes, file.last_id) == ("arena-1", 5, "1005-0")
    for entry in _entries(4, first=6):
        file.append([entry], position=entry.vote_id)
    file.close()
    assert list(read_entries(path, arena="arena-1")) == _entries(9)
    assert scan(path).num_votes == 9


def test_lines_before_the_position_are_not_read_at_the_opening(tmp_path: Path) -> None:
    path = _written(tmp_path)
    _change_line(path, 3)
    file = JournalFile.open(tmp_path)
    assert (file.num_votes, file.last_id) == (5, "1005-0")
    file.close()
    with pytest.raises(JournalDamaged):
        scan(path)


def test_a_bad_line_after_the_position_is_refused_with_its_number(tmp_path: Path) -> None:
    path = _written(tmp_path)
    _change_line(path, 6)
    with pytest.raises(JournalDamaged) as refused:
        JournalFile.open(tmp_path)
    assert refused.value.line == 6


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _claim_more(path: Path) -> None:
    values = json.loads(position_file(path).read_text())
    position_file(path).write_text(json.dumps({**values, "num_votes": 400}))


def _take_from_another(path: Path) -> None:
    other = _written(path.parent / "other", count=4)
    position_file(path).write_bytes(position_file(other).read_bytes().replace(b"arena-1", b"arena-2"))


def _cut_journal(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:2], lines[2].replace(b"battle-", b"bettle-"))))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: _shorten(position_file(path)),
        lambda path: position_file(path).write_text("[]"),
        lambda path: position_file(path).write_bytes(b"\x00" * 80),
        lambda path: position_file(path).unlink(),
        _claim_more,
        _take_from_another,
    ],
    ids=["torn", "no object", "zeros", "gone", "changed", "of another journal"],
)
def test_a_position_that_does_not_fit_is_not_believed(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = _written(tmp_path)
    _change_line(path, 3)
    spoil(path)
    with pytest.raises(JournalDamaged) as refused:
        JournalFile.open(tmp_path)
    assert refused.value.line == 3


def test_a_journal_that_is_shorter_than_its_position_is_read(tmp_path: Path) -> None:
    path = _written(tmp_path)
    _cut_journal(path)
    with pytest.raises(JournalDamaged) as refused:
        JournalFile.open(tmp_path)
    assert refused.value.line == 3


async def test_damage_before_the_position_is_reported_and_refused_at_the_next_start(
    own_store: StoreProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j" / "votes-1.jsonl"
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await voted(arena, 4)
    _change_line(path, 2)
    async with journal_arena(own_store, tmp_path / "j") as arena:

        async def says_so() -> bool:
            answer = await arena.client.get("/ready")
            return answer.status_code == 503 and "journal_comparison" in answer.text

        await eventually(says_so)
        assert "journal_damaged" in caplog.messages
        await eventually(lambda: not position_file(path).exists())
    with pytest.raises(JournalDamaged) as refused:
        async with journal_arena(own_store, tmp_path / "j"):
            pass
    assert refused.value.line == 2
