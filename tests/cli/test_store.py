"""`agon store`: damage of the store's files and of the journal is found, named and repaired; no vote is lost."""

import asyncio
import random
import shutil
from pathlib import Path

import pytest
import redis

from cli.arena.append_only import find_damage
from cli.arena.data_dir import DataDir, Running
from cli.arena.embedded_redis import find_binary
from cli.arena.mend import mend
from cli.arena.store_server import FOLDER, copied_store, loads, served_store
from cli.errors import StoreError
from cli.main import main
from cli.store_votes import read_store
from controller.store_address import parse_address
from controller.votes.journal.journal_file import JournalFile, read_entries
from controller.votes.vote_log import LogEntry, stored
from wire.votes import VotedSide, VoteRecord

PREFIX = "agon:v1"
ARENA = "the-arena"


def _vote(number: int) -> LogEntry:
    vote = VoteRecord(
        vote_id="",
        battle_id=f"battle-{number}",
        time=0,
        mode="anonymous",
        outcome="a",
        a=VotedSide(model="alpha", revision="r"),
        b=VotedSide(model="beta", revision="r"),
        voter="v",
    )
    return LogEntry(
        f"{1_700_000_000_000 + number}-0", vote.battle_id, 1_700_000_000_000 + number, stored(vote), "2023-11-14"
    )


VOTES = [_vote(number) for number in range(60)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of a stopped arena with 60 votes, the first 30 in the base file of the store."""
    folder = DataDir(tmp_path_factory.mktemp("whole"))
    folder.create()
    with served_store(folder.store, find_binary()) as url, redis.Redis.from_url(url) as client:
        client.set(f"{PREFIX}:arena", ARENA)
        for number, vote in enumerate(VOTES):
            if number == 30:
                client.bgrewriteaof()
                while client.info("persistence")["aof_rewrite_in_progress"]:
                    pass
            with client.pipeline() as together:
                together.xadd(
                    f"{PREFIX}:votes",
                    {"record": vote.record, "time": vote.time_ms, "voter_day": "2023-11-14"},
                    vote.vote_id,
                )
                together.sadd(f"{PREFIX}:logged", vote.battle_id)
                together.execute()
    journal = JournalFile.open(folder.journal())
    journal.require_arena(ARENA)
    journal.append(VOTES, position=VOTES[-1].vote_id)
    journal.close()
    return folder.path


@pytest.fixture
def folder(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    for name in ("AGON_REDIS_URL", "REDIS_URL", "AGON_JOURNAL_DIR"):
        monkeypatch.delenv(name, raising=False)
    shutil.copytree(whole, tmp_path / "data", ignore=shutil.ignore_patterns("*.sock"))
    return DataDir(tmp_path / "data")


def _incremental(folder: DataDir) -> Path:
    return max((folder.store / FOLDER).glob("*.incr.aof"))


def _store(folder: DataDir) -> list[LogEntry]:
    with copied_store(folder.store, find_binary()) as url:
        return list(asyncio.run(read_store(parse_address(url), PREFIX)).values())


def _agon(*arguments: str) -> int:
    try:
        main(["store", *arguments])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    return 0


def _check(folder: DataDir) -> int:
    return _agon("check", "--data-dir", str(folder.path))


def test_a_whole_store_passes_and_stays_as_it_is(folder: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    before = _incremental(folder).read_bytes()

    assert _check(folder) == 0

    assert "60 in the store" in capsys.readouterr().out
    assert _incremental(folder).read_bytes() == before


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_anywhere_starts_without_votes_that_check_finds_and_repair_brings_back(
    folder: DataDir, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _incremental(folder)
    data = path.read_bytes()
    path.write_bytes(data[: random.Random(seed).randrange(len(data) - 300)])

    assert _check(folder) == 1
    assert "votes of the journal are missing in the store" in capsys.readouterr().out
    assert _agon("repair", "--data-dir", str(folder.path)) == 0

    assert _check(folder) == 0
    assert _store(folder) == VOTES


def _changed(data: bytes, seed: int) -> bytes:
    """`data` with one of the ways in which disks lie."""
    draw = random.Random(seed)
    at = draw.randrange(1, len(data) - 1000)
    match seed % 4:
        case 0:
            return data + bytes(draw.randrange(1, 5000))
        case 1:
            return data[:at] + bytes(500) + data[at + 500 :]
        case 2:
            return data[:at] + data[at + 700 :]
        case _:
            return data[:at] + draw.randbytes(300) + data[at + 300 :]


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_refused_by_name_and_repaired_with_every_vote(
    folder: DataDir, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _incremental(folder)
    damaged = _changed(path.read_bytes(), seed)
    path.write_bytes(damaged)

    assert _check(folder) == 1
    assert "PROBLEM" in capsys.readouterr().out
    assert _agon("repair", "--data-dir", str(folder.path)) == 0

    assert _store(folder) == VOTES
    if not loads(next((folder.path / "set-aside").rglob("store"), folder.store), find_binary()):
        [aside] = (folder.path / "set-aside").rglob(path.name)
        assert aside.read_bytes() == damaged


@pytest.mark.parametrize("name", ["*.base.*", "*.incr.aof", "*.manifest"])
@pytest.mark.parametrize("how", ["missing", "half", "changed"])
def test_any_file_of_the_store_may_be_damaged(folder: DataDir, name: str, how: str) -> None:
    path = max((folder.store / FOLDER).glob(name))
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "half":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
        path.write_bytes(data)

    assert _check(folder) == 1
    assert _agon("repair", "--data-dir", str(folder.path)) == 0

    assert _check(folder) == 0
    assert _store(folder) == VOTES


def test_the_supervisor_mends_by_itself_only_with_a_whole_journal(folder: DataDir) -> None:
    path = _incremental(folder)
    path.write_bytes(path.read_bytes() + bytes(100))
    journal = folder.journal() / "votes-1.jsonl"
    text = journal.read_bytes()
    said: list[str] = []
    for content, reason in ((b"", "There is no journal"), (text.replace(b"alpha", b"gamma", 1), "is damaged, too")):
        journal.write_bytes(content)
        with pytest.raises(StoreError, match="agon store repair") as caught:
            mend(folder, find_binary(), said.append)
        assert reason in str(caught.value)
        assert not loads(folder.store, find_binary())

    journal.write_bytes(text)
    mend(folder, find_binary(), said.append)

    assert loads(folder.store, find_binary())
    assert len(said) == 1
    assert "Votes come back from the journal" in said[0]
    mend(folder, find_binary(), said.append)
    assert len(said) == 1


def test_a_damaged_journal_is_named_with_its_line_and_written_anew_from_both(
    folder: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder.journal() / "votes-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[10] = lines[10].replace(b"alpha", b"gamma")
    path.write_bytes(b"".join(lines))

    assert _check(folder) == 1
    assert f"{path} is damaged in line 11" in capsys.readouterr().out
    assert _agon("repair", "--data-dir", str(folder.path)) == 0

    assert "59 votes kept, 1 lines unreadable" in capsys.readouterr().out
    assert list(read_entries(path, arena=ARENA)) == VOTES[:9] + VOTES[10:]
    assert _store(folder) == VOTES


def test_a_record_that_was_changed_in_the_store_is_named(folder: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    path = _incremental(folder)
    data = path.read_bytes()
    at = data.index(b'"model":"alpha"', len(data) // 2)
    path.write_bytes(data[:at] + b'"model":"omega"' + data[at + 15 :])

    assert _check(folder) == 1
    assert "the store's record differs from the journal's" in capsys.readouterr().out


def test_votes_are_restored_from_a_journal_a_backup_and_an_export(
    folder: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = tmp_path / "votes.ndjson"
    export.write_text("".join(entry.vote.model_dump_json(exclude_none=True) + "\n" for entry in VOTES))
    sources = (folder.journal() / "votes-1.jsonl", export, folder.path, folder.store, folder.store / FOLDER)
    for number, source in enumerate(sources):
        new = DataDir(tmp_path / f"new{number}")
        for expected in (60, 0):
            assert _agon("restore", str(source), "--data-dir", str(new.path)) == 0
            assert f"{expected} restored, 60 in the store" in capsys.readouterr().out
        restored = _store(new)
        assert [entry.vote for entry in restored] == [entry.vote for entry in VOTES]


def test_what_is_no_source_is_refused_with_its_line(folder: DataDir, tmp_path: Path) -> None:
    source = tmp_path / "x"
    source.write_text(VOTES[0].vote.model_dump_json() + "\nnonsense\n")
    for bad, text in ((source, "line 2"), (tmp_path / "none", "cannot read"), (tmp_path / "data" / "logs", "no copy")):
        with pytest.raises(SystemExit, match=text):
            main(["store", "restore", str(bad), "--data-dir", str(folder.path)])


def test_reset_sets_everything_aside(folder: DataDir) -> None:
    with pytest.raises(SystemExit, match="--yes"):
        main(["store", "reset", "--data-dir", str(folder.path)])
    assert len(_store(folder)) == 60

    assert _agon("reset", "--yes", "--data-dir", str(folder.path)) == 0

    assert _store(folder) == []
    assert not folder.journal().exists()
    [journal] = (folder.path / "set-aside").rglob("votes-1.jsonl")
    assert list(read_entries(journal)) == VOTES


def test_a_running_arena_is_checked_and_otherwise_left_alone(folder: DataDir) -> None:
    folder.lock(Running(1, "http://web", "http://controller"))
    try:
        with served_store(folder.store, find_binary()):
            assert _check(folder) == 0
            for command in (["repair"], ["restore", "x"], ["reset", "--yes"]):
                with pytest.raises(SystemExit, match="an arena already runs"):
                    main(["store", *command, "--data-dir", str(folder.path)])
    finally:
        folder.unlock()


def test_a_folder_without_votes_is_whole(tmp_path: Path) -> None:
    assert find_damage(tmp_path) is None
