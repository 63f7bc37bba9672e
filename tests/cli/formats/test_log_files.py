"""Files of votes are read an entry at a time, whatever they are, and say which line is bad."""

import io
import json
import tracemalloc
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.formats.conversations import to_row
from cli.formats.log_files import LineWriter, read_entries, read_lines
from cli.formats.parquet import ParquetWriter, arrow_schema
from cli.formats.schemas import Schema, SourceSchema
from tests.cli.formats.test_schemas import record
from wire.chat import ChatMessage
from wire.feedback import FeedbackRecord
from wire.judgements import Judgement
from wire.labels import LabelRecord
from wire.log_records import LogRecord
from wire.votes import VoteRecord

_JUDGEMENT = Judgement(
    judgement_id="9-0", key="judgement:1", time=5.0, action="flag", flag="withdrawn", battle_ids=("b-1",), by="admin"
)
_FEEDBACK = FeedbackRecord(
    feedback_id="10-0",
    key="feedback:1",
    time=6.0,
    battle_id="b-1",
    voter="v",
    reasons=("style",),
    comment='two\nlines, "quoted"',
    thumbs={"a": "up", "b": "down"},
)
_LABEL = LabelRecord(label_id="11-0", key="label:1", time=7.0, battle_id="b-1", categories=("code",), by="m")


def _file(path: Path, *entries: LogRecord) -> Path:
    path.write_text("".join(entry.model_dump_json(exclude_none=True) + "\n\n" for entry in entries))
    return path


def test_a_file_is_read_from_any_line_on(tmp_path: Path) -> None:
    votes = [record(battle_id=f"b-{number}") for number in range(4)]
    path = _file(tmp_path / "log", *votes)
    assert list(read_entries(path)) == votes
    assert [line.number for line in read_lines(path, skip=3)] == [5, 7]


def test_records_that_are_no_votes_are_read_as_such(tmp_path: Path) -> None:
    path = _file(tmp_path / "log", record(), _JUDGEMENT, _FEEDBACK)
    assert list(read_entries(path)) == [record(), _JUDGEMENT, _FEEDBACK]


def test_the_schema_is_told_by_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(json.dumps(to_row(record(battle_id=f"b-{number}"))) for number in range(3)))
    assert [entry.battle_id for entry in read_entries(path) if isinstance(entry, VoteRecord)] == ["b-0", "b-1", "b-2"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{}", "line 3 is not a vote: vote_id: Field required"),
        (b"[1]", "line 3 is not a vote"),
        (b"{", "line 3 is no JSON"),
        (b"\xff", "line 3 is no JSON"),
    ],
)
def test_a_bad_line_is_counted(tmp_path: Path, line: bytes, reason: str) -> None:
    path = _file(tmp_path / "log", record())
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(CliError, match=reason):
        list(read_lines(path))


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    """A text may hold any other character that Python takes for a line break."""
    vote = record(comment="one\u2028two\x85three\x0cfour")
    assert list(read_entries(_file(tmp_path / "log", vote))) == [vote]


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"cannot read .*missing"):
        list(read_lines(tmp_path / "missing"))


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(CliError, match=r"line 1 of .* is longer"):
        list(read_lines(path))


def test_a_large_file_is_read_in_little_memory(tmp_path: Path) -> None:
    line = (record(comment="x" * 4000).model_dump_json(exclude_none=True) + "\n").encode()
    path = tmp_path / "log"
    path.write_bytes(line * 4000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_lines(path)) == 4000
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 10
    finally:
        tracemalloc.stop()


def test_a_public_schema_has_votes_alone() -> None:
    file = io.BytesIO()
    writer = LineWriter(file, Schema.ARENA)
    lines = [entry.model_dump_json(exclude_none=True).encode() for entry in (record(), _JUDGEMENT, _FEEDBACK)]
    assert [writer.write_line(line) for line in lines] == [True, False, False]
    assert json.loads(file.getvalue())["question_id"] == "b-1"


def test_parquet_keeps_every_field_of_every_record(tmp_path: Path) -> None:
    texts = (ChatMessage(role="user", content="Hi\nthere"), ChatMessage(role="assistant", content=""))
    entries: list[LogRecord] = [
        record(conversations={"a": texts, "b": texts[:1]}, reasons=("x", "y"), flags=("named",), probability=0.1),
        _JUDGEMENT,
        _FEEDBACK,
        _LABEL,
        record(battle_id="b-2", consent=False, read_ms=0.0, identity="cookie", categories=("code",)),
    ]
    path = tmp_path / "log.parquet"
    writer = ParquetWriter(path, Schema.AGON)
    assert [writer.write(entry) for entry in entries] == [True] * 5
    writer.close()
    assert list(read_entries(path)) == entries
    assert [line.number for line in read_lines(path, skip=4)] == [5]


@pytest.mark.parametrize("schema", [Schema.ARENA, Schema.PREFERENCES])
def test_parquet_of_a_public_schema_is_recognised_and_read(tmp_path: Path, schema: Schema) -> None:
    texts = (ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hello"))
    vote = record(conversations={"a": texts, "b": texts})
    path = tmp_path / "log.parquet"
    writer = ParquetWriter(path, schema)
    assert [writer.write(entry) for entry in (vote, _JUDGEMENT, _FEEDBACK, vote)] == [True, False, False, True]
    writer.close()
    back = list(read_entries(path, SourceSchema.AUTO))
    assert [(entry.battle_id, entry.time) for entry in back if isinstance(entry, VoteRecord)] == [
        (vote.battle_id, vote.time)
    ] * 2
    assert back[0].conversations == vote.conversations  # type: ignore[union-attr]


def test_every_field_of_a_vote_has_a_column() -> None:
    names = {field.alias or name for name, field in VoteRecord.model_fields.items()}
    assert set(arrow_schema(Schema.AGON).names) == {*names, "judgement", "feedback", "label"}


def test_a_damaged_parquet_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(CliError, match=r"cannot read .*log.parquet"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "line 1 is not a vote"),
        ('[{"winner": "tie"} {}]', "element 1 of the array in .* is followed by '{'"),
        ('[{"winner": "tie",]', "element 1 of the array in .* is no JSON"),
        ('[{"winner": "tie"}', "the array in .* has no end after element 1"),
        ("[", "the array in .* has no end after element 0"),
    ],
)
def test_a_damaged_array_says_where(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "votes.json"
    path.write_text(text)
    with pytest.raises(CliError, match=reason):
        list(read_lines(path, leave_out=None if "1]" in text else lambda raw, reason: None))


def test_an_empty_array_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "votes.json"
    path.write_bytes(b"\xef\xbb\xbf \n[ ]")
    assert list(read_lines(path)) == []


_ODD = (
    b"",
    b"{",
    b"\xff\xfe",
    b"[1]",
    b"null",
    b'{"model_a": "x"}',
    b"[" * 100_000,
    json.dumps({**to_row(record()), "winner": "nobody"}).encode(),
    json.dumps({**to_row(record()), "model_a": "raven"}).encode(),
    json.dumps({**to_row(record()), "tstamp": "NaN"}).encode(),
    json.dumps({**to_row(record()), "turn": 10**30}).encode(),
    json.dumps({**to_row(record()), "judge": "\ud800"}).encode(),
    json.dumps({**to_row(record()), "judge": "\x00"}).encode(),
)


@pytest.mark.parametrize("first", [True, False])
def test_odd_lines_are_left_out_wherever_they_stand(tmp_path: Path, first: bool) -> None:
    good = [json.dumps(to_row(record(battle_id=f"b-{number}"))).encode() for number in range(3)]
    path = tmp_path / "votes.ndjson"
    path.write_bytes(b"\n".join([*_ODD, *good] if first else [*good, *_ODD]))
    left: list[int] = []
    lines = list(read_lines(path, leave_out=lambda raw, reason: left.append(raw.number)))
    assert len(lines) == 3
    assert left == [number + (0 if first else 3) for number in range(2, len(_ODD) + 1)]


def test_a_row_of_a_table_with_other_cells_than_the_header_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("id,model_a,model_b,winner\n1,x,y,tie\n2,x,y\n3,x,y,tie,z\n4,x,y,model_a\n")
    left: list[int] = []
    lines = list(read_lines(path, leave_out=lambda raw, reason: left.append(raw.number)))
    assert ([line.number for line in lines], left) == ([1, 4], [2, 3])
