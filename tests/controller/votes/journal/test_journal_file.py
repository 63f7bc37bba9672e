"""The journal's file: what is written is read back, a torn tail is cut, and every other change is noticed."""

import os
import random
from pathlib import Path

import pytest

from controller.errors import ForeignJournal, JournalDamaged
from controller.votes.journal.journal_file import JournalFile, read_entries, salvage, scan, write_new
from controller.votes.vote_log import LogEntry


def _entries(count: int, first: int = 1) -> list[LogEntry]:
    return [
        LogEntry(f"{1000 + number}-0", f"battle-{number}", number, f'{{"battle_id":{number},"x":"\u00e9\\n"}}', None)
        for number in range(first, first + count)
    ]


def _written(folder: Path, count: int = 5) -> tuple[Path, list[LogEntry]]:
    entries = _entries(count)
    file = JournalFile.open(folder)
    file.require_arena("arena-1")
    for entry in entries:
        file.append([entry], position=entry.vote_id)
    file.close()
    return file.path, entries


def test_votes_are_read_back_in_order_and_appended_after_a_restart(tmp_path: Path) -> None:
    path, entries = _written(tmp_path)
    more = _entries(2, first=6)

    file = JournalFile.open(tmp_path)
    assert (file.path, file.arena, file.num_votes, file.last_id) == (path, "arena-1", 5, "1005-0")
    file.append(more, position=more[-1].vote_id)
    file.close()

    assert list(read_entries(path)) == [*entries, *more]


def test_a_tail_torn_at_any_byte_costs_only_the_last_line(tmp_path: Path) -> None:
    path, entries = _written(tmp_path)
    whole = path.read_bytes()
    end_of_fourth = len(b"".join(whole.splitlines(keepends=True)[:-1]))
    for size in range(end_of_fourth, len(whole)):
        path.write_bytes(whole[:size])
        file = JournalFile.open(tmp_path)
        assert file.num_votes == 4
        file.append(entries[4:], position="1005-0")
        file.close()
        assert path.read_bytes() == whole


def test_zeros_after_a_power_cut_are_a_torn_tail(tmp_path: Path) -> None:
    path, entries = _written(tmp_path)
    with open(path, "ab") as file:
        file.write(bytes(4096))

    assert list(read_entries(path)) == entries
    assert scan(path).num_torn_bytes == 4096


def test_every_changed_byte_before_the_last_line_is_noticed_and_costs_one_vote(tmp_path: Path) -> None:
    path, entries = _written(tmp_path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    header_end, end = len(lines[0]), len(whole) - len(lines[-1])
    draw = random.Random(1)
    for _ in range(150):
        at = draw.randrange(end)
        changed = bytearray(whole)
        changed[at] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)

        with pytest.raises(JournalDamaged) as caught:
            scan(path)

        assert caught.value.line == whole[:at].count(b"\n") + 1
        arena, kept, num_bad = salvage(path)
        num_lost = 2 if whole[at : at + 1] == b"\n" else 1
        assert len(kept) >= len(entries) - num_lost
        assert num_bad <= 2
        assert all(entry in entries for entry in kept)
        assert arena == "arena-1" or at < header_end


def test_a_lost_line_is_noticed_and_costs_the_one_after_it(tmp_path: Path) -> None:
    path, entries = _written(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))

    with pytest.raises(JournalDamaged) as caught:
        scan(path)

    assert caught.value.line == 3
    assert "line 3" in str(caught.value)
    assert "agon store repair" in str(caught.value)
    assert salvage(path) == ("arena-1", [entries[0], *entries[3:]], 1)


def test_a_second_process_gets_a_journal_of_its_own(tmp_path: Path) -> None:
    first, second = JournalFile.open(tmp_path), JournalFile.open(tmp_path)
    assert [first.path.name, second.path.name] == ["votes-1.jsonl", "votes-2.jsonl"]
    first.close()
    third = JournalFile.open(tmp_path)
    assert third.path.name == "votes-1.jsonl"
    for file in (second, third):
        file.close()


def test_a_journal_of_another_arena_is_refused(tmp_path: Path) -> None:
    path, _ = _written(tmp_path)
    file = JournalFile.open(tmp_path)
    with pytest.raises(ForeignJournal, match="another arena"):
        file.require_arena("arena-2")
    file.close()
    with pytest.raises(ForeignJournal):
        list(read_entries(path, arena="arena-2"))


def test_a_failed_write_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, entries = _written(tmp_path)
    more = _entries(1, first=6)
    file = JournalFile.open(tmp_path)
    monkeypatch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        file.append(more, position="1006-0")
    monkeypatch.undo()
    assert (file.num_votes, file.last_id) == (5, "1005-0")

    file.append(more, position="1006-0")
    file.close()

    assert list(read_entries(path)) == [*entries, *more]


def test_a_whole_journal_can_be_written_anew(tmp_path: Path) -> None:
    entries = _entries(3)
    write_new(tmp_path / "votes-1.jsonl", "arena-1", entries)

    assert list(read_entries(tmp_path / "votes-1.jsonl", arena="arena-1")) == entries
    assert scan(tmp_path / "votes-1.jsonl").num_votes == 3
