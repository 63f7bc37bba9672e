"""Imports and exports of the command line survive an arena that is busy, connections that break and interruptions."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from cli.errors import CliError
from cli.formats.log_files import read_entries
from cli.formats.schemas import Schema, SourceSchema
from cli.transfer import arena_log, exports
from cli.transfer.exports import Export
from cli.transfer.imports import import_file
from cli.transfer.left_out import LeftOut
from tests.cli.formats.test_schemas import record
from wire.entry_ids import LOG_START, entry_order
from wire.errors import ApiError, ErrorCode
from wire.votes import VoteRecord


class ArenaLog:
    """The log of an arena behind a transport. `faults` are taken one a request: what happens instead of an answer."""

    def __init__(self) -> None:
        self.votes: dict[str, bytes] = {}  #: by battle, in order
        self.faults: list[str] = []
        self.num_requests = 0

    @property
    def client(self) -> httpx.Client:
        return httpx.Client(base_url="http://arena", transport=httpx.MockTransport(self._handle))

    def add(self, count: int) -> None:
        for number in range(len(self.votes) + 1, len(self.votes) + count + 1):
            vote = record(vote_id=f"{number}-0", battle_id=f"b-{number}", comment="x" * 300)
            self.votes[vote.battle_id] = vote.model_dump_json(exclude_none=True).encode()

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.num_requests += 1
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "busy":
            error = ApiError(ErrorCode.STORE_UNAVAILABLE, "The store does not answer.")
            return httpx.Response(503, json=error.body().model_dump(), headers={"Retry-After": "0"})
        if fault == "refused":
            raise httpx.ConnectError("connection refused")
        if fault == "interrupt":
            raise KeyboardInterrupt
        if request.method == "GET":
            return self._export(request.url.params["after"], fault)
        return self._import(request.content, fault)

    def _import(self, body: bytes, fault: str) -> httpx.Response:
        lines = {str(json.loads(line)["battle_id"]): line for line in body.split(b"\n")}
        new = lines.keys() - self.votes.keys()
        self.votes.update({battle: line for battle, line in lines.items() if battle in new})
        if fault == "lost answer":
            raise httpx.ReadError("connection reset")
        return httpx.Response(200, json={"imported": len(new), "skipped": len(lines) - len(new)})

    def _export(self, after: str, fault: str) -> httpx.Response:
        def pieces() -> Iterator[bytes]:
            for number, line in enumerate(self.votes.values()):
                if entry_order(json.loads(line)["vote_id"]) > entry_order(after):
                    if fault == "cut" and number >= len(self.votes) // 2:
                        yield line[:20]
                        raise httpx.RemoteProtocolError("peer closed the connection")
                    yield line + b"\n"

        return httpx.Response(200, content=pieces())


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> ArenaLog:
    """Small pieces and short pauses: an import of 20 votes takes several requests."""
    monkeypatch.setattr(arena_log, "PIECE_BYTES", 2500)
    monkeypatch.setattr(arena_log, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(exports, "MARK_EVERY_LINES", 3)
    return ArenaLog()


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    other = ArenaLog()
    other.add(20)
    path = tmp_path / "votes.ndjson"
    path.write_bytes(b"\n".join(other.votes.values()) + b"\n")
    return path


def _battles(path: Path) -> list[str]:
    return [entry.battle_id for entry in read_entries(path) if isinstance(entry, VoteRecord)]


@pytest.mark.parametrize("fault", ["busy", "refused", "lost answer"])
def test_an_import_waits_for_an_arena_that_does_not_answer(arena: ArenaLog, log_file: Path, fault: str) -> None:
    arena.faults = ["", fault, fault, "", fault]
    done = import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60)
    assert list(arena.votes) == _battles(log_file)
    assert done.imported + done.skipped == 20
    assert fault == "lost answer" or done.imported == 20
    assert [path.name for path in log_file.parent.iterdir()] == [log_file.name]


def test_the_patience_of_an_import_has_an_end_and_it_goes_on_afterwards(arena: ArenaLog, log_file: Path) -> None:
    arena.faults = ["", "", *["busy"] * 10_000]
    with pytest.raises(CliError, match="given up after 0 s"):
        import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=0.1)
    num_before = len(arena.votes)
    arena.faults, arena.num_requests = [], 0
    done = import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60)
    assert 0 < num_before < 20
    assert (done.imported, done.skipped, done.num_read) == (20, 0, 20)
    assert list(arena.votes) == _battles(log_file)
    fresh = ArenaLog()
    import_file(fresh.client, log_file, SourceSchema.AUTO, patience_s=60)
    assert arena.num_requests < fresh.num_requests


def test_an_interrupted_import_begins_anew_if_the_log_has_lost_what_it_had(arena: ArenaLog, log_file: Path) -> None:
    arena.faults = ["", "", "interrupt"]
    with pytest.raises(KeyboardInterrupt):
        import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60)
    arena.votes.clear()
    done = import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60)
    assert sorted(arena.votes) == sorted(_battles(log_file))
    assert done.imported + done.skipped == 20


@pytest.mark.parametrize("change", ["another file", "another arena"])
def test_the_bookmark_of_another_import_is_not_followed(arena: ArenaLog, log_file: Path, change: str) -> None:
    arena.faults = ["", "", "interrupt"]
    with pytest.raises(KeyboardInterrupt):
        import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60)
    client = arena.client
    if change == "another file":
        log_file.write_bytes(log_file.read_bytes().replace(b"b-1", b"c-1"))
    else:
        client, arena.votes = httpx.Client(base_url="http://other", transport=client._transport), {}
    import_file(client, log_file, SourceSchema.AUTO, patience_s=60)
    assert set(_battles(log_file)) <= set(arena.votes)


def test_a_refused_line_is_found_in_the_file(log_file: Path) -> None:
    error = ApiError(ErrorCode.INVALID_REQUEST, "Line 2 is not a vote: NaN is not a JSON number.")
    answer = httpx.Response(400, json=error.body().model_dump())
    client = httpx.Client(base_url="http://arena", transport=httpx.MockTransport(lambda _: answer))
    with pytest.raises(CliError, match=r"Line 2 is not a vote.*counted from line 1 of the file"):
        import_file(client, log_file, SourceSchema.AUTO, patience_s=60)


def _spoil(path: Path, *numbers: int) -> None:
    lines = path.read_bytes().splitlines()
    for number in numbers:
        lines[number - 1] = b'{"outcome": "a"}'
    path.write_bytes(b"\n".join(lines) + b"\n")


def test_the_votes_before_an_odd_line_are_in_the_log(arena: ArenaLog, log_file: Path) -> None:
    _spoil(log_file, 12)
    with pytest.raises(CliError, match=r"line 12 is not a vote.*Before it 11 were imported.*--skip-invalid"):
        import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60)
    assert list(arena.votes) == [f"b-{number}" for number in range(1, 12)]


@pytest.mark.parametrize("interrupted", [False, True])
def test_odd_lines_are_left_out_once_also_after_an_interruption(
    arena: ArenaLog, log_file: Path, interrupted: bool
) -> None:
    _spoil(log_file, 2, 12, 20)
    if interrupted:
        arena.faults = ["", "", "interrupt"]
        with pytest.raises(KeyboardInterrupt):
            import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60, left_out=LeftOut(log_file))
    left_out = LeftOut(log_file)
    done = import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60, left_out=left_out)
    assert (len(arena.votes), done.imported + done.skipped, left_out.count) == (17, 17, 3)
    kept = [json.loads(line) for line in left_out.path.read_text().splitlines()]
    assert [entry["line"] for entry in kept] == left_out.first_lines == [2, 12, 20]
    assert kept[0]["row"] == '{"outcome": "a"}'
    assert "vote_id: Field required" in kept[0]["reason"]


def test_nothing_left_out_leaves_no_file(arena: ArenaLog, log_file: Path) -> None:
    import_file(arena.client, log_file, SourceSchema.AUTO, patience_s=60, left_out=LeftOut(log_file))
    assert [path.name for path in log_file.parent.iterdir()] == [log_file.name]


def _export(arena: ArenaLog, schema: Schema = Schema.AGON) -> Export:
    return Export(arena.client, schema, str(LOG_START), conversations=False, patience_s=60)


def test_an_export_goes_on_after_the_last_vote_when_its_connection_breaks(arena: ArenaLog, tmp_path: Path) -> None:
    arena.add(10)
    arena.faults = ["busy", "cut", "refused", "busy"]
    assert _export(arena).to_file(tmp_path / "log") == 10
    assert (tmp_path / "log").read_bytes() == b"".join(line + b"\n" for line in arena.votes.values())
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("schema", [Schema.AGON, Schema.ARENA])
def test_an_interrupted_export_goes_on_where_it_was(arena: ArenaLog, tmp_path: Path, schema: Schema) -> None:
    arena.add(10)
    _export(arena, schema).to_file(tmp_path / "whole")
    arena.faults = ["cut", "interrupt"]
    with pytest.raises(KeyboardInterrupt):
        _export(arena, schema).to_file(tmp_path / "log")
    assert not (tmp_path / "log").exists()
    with open(tmp_path / "log.part", "ab") as file:
        file.write(b'{"torn')
    seen: list[str] = []
    assert _watched(arena, schema, seen).to_file(tmp_path / "log") == 10
    assert seen == ["3-0"]
    assert (tmp_path / "log").read_bytes() == (tmp_path / "whole").read_bytes()


def _watched(arena: ArenaLog, schema: Schema, seen: list[str]) -> Export:
    """An export whose requests' positions are noted."""
    note: Callable[[httpx.Request], None] = lambda request: seen.append(request.url.params["after"])  # noqa: E731
    client = httpx.Client(base_url="http://arena", transport=arena.client._transport, event_hooks={"request": [note]})
    return Export(client, schema, str(LOG_START), conversations=False, patience_s=60)


def test_a_parquet_export_is_whole_or_absent(arena: ArenaLog, tmp_path: Path) -> None:
    arena.add(10)
    path = tmp_path / "log.parquet"
    arena.faults = ["cut", "interrupt"]
    with pytest.raises(KeyboardInterrupt):
        _export(arena).to_file(path)
    assert list(tmp_path.iterdir()) == []
    assert _export(arena).to_file(path) == 10
    assert _battles(path) == list(arena.votes)


def test_a_file_that_cannot_be_written_is_an_error_with_its_name(arena: ArenaLog, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"cannot write .*No such file"):
        _export(arena).to_file(tmp_path / "missing" / "log")
