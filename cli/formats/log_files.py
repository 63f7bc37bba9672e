"""Files of votes, read and written an entry at a time, so that their size does not matter."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cli.errors import CliError
from cli.formats.rows import MAX_LINE_BYTES, RawRow, read_raw_rows
from cli.formats.schemas import TO_ROW, InvalidRow, Schema, SourceSchema, as_object, detect, from_row, parse_row
from wire.errors import ApiError
from wire.log_records import LogRecord, parse_log_line, parse_strictly
from wire.votes import VoteRecord

LeaveOut = Callable[[RawRow, str], None]  #: told of a row that is no vote, and why


@dataclass(frozen=True)
class NumberedLine:
    """An entry as a line of our own schema, without a line break. `number` is that of its line or row, from 1; a row
    may have several entries."""

    number: int
    text: bytes


def read_lines(
    source: Path, schema: SourceSchema = SourceSchema.AUTO, *, skip: int = 0, leave_out: LeaveOut | None = None
) -> Iterator[NumberedLine]:
    """The entries of a file as lines of our own schema, without those of its first `skip` lines or rows.

    A row that is no vote is told to `leave_out`; without one it ends the reading. Raises InvalidRow with the number of
    such a row, and CliError for a file that cannot be read.
    """
    for raw in read_raw_rows(source, skip=skip):
        try:
            if schema is SourceSchema.AUTO:
                schema = detect(_row_of(raw))
            lines = _lines_of(schema, raw)
        except CliError as error:
            if leave_out is None:
                raise
            leave_out(raw, str(error))
            continue
        for line in lines:
            yield NumberedLine(raw.number, line)


def read_entries(source: Path, schema: SourceSchema = SourceSchema.AUTO) -> Iterator[LogRecord]:
    """The same as entries."""
    for line in read_lines(source, schema):
        yield parse_log_line(line.text)


class LineWriter:
    """Writes entries as lines in one of the schemas."""

    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        self._file = file
        self._to_row = TO_ROW.get(schema)

    def write_line(self, line: bytes) -> bool:
        """Write an entry that is given as a line of our own schema; False if the schema has no such entries. Raises
        OSError."""
        if self._to_row is not None:
            entry = parse_log_line(line)
            if not isinstance(entry, VoteRecord):
                return False
            line = json.dumps(self._to_row(entry), ensure_ascii=False).encode()
        self._file.write(line + b"\n")
        return True


def _row_of(raw: RawRow) -> dict[str, object]:
    if raw.error is not None:
        raise InvalidRow(raw.error)
    return parse_row(raw.content, raw.number) if isinstance(raw.content, bytes) else as_object(raw.content, raw.number)


def _lines_of(schema: SourceSchema, raw: RawRow) -> list[bytes]:
    if schema is SourceSchema.AGON and isinstance(raw.content, bytes):
        _check_own(raw.content, raw.number)  # sent as it is
        return [raw.content]
    return [_as_line(entry, raw.number) for entry in from_row(schema, _row_of(raw), raw.number)]


def _check_own(line: bytes, number: int) -> None:
    """Raises InvalidRow for a line of our own schema that the controller would refuse."""
    try:
        parse_strictly(line)
    except ApiError as refused:
        from_row(SourceSchema.AGON, parse_row(line, number), number)  # raises with the better reason
        raise InvalidRow(f"line {number} is not a vote: {refused.message}") from None


def _as_line(entry: LogRecord, number: int) -> bytes:
    """Raises InvalidRow for an entry that the controller would refuse. Texts are checked for what JSON cannot hold or
    the log cannot store, all else by the parser of the controller."""
    try:
        line = entry.model_dump_json(exclude_none=True).encode()
        has_texts = isinstance(entry, VoteRecord) and entry.conversations is not None and b"\\u0000" not in line
        checked = entry.model_copy(update={"conversations": None}) if has_texts else entry
        parse_strictly(checked.model_dump_json(exclude_none=True).encode() if has_texts else line)
    except ApiError as refused:
        raise InvalidRow(f"line {number} is not a vote: {refused.message}") from None
    except ValueError as error:  # a text with half of a surrogate pair
        raise InvalidRow(f"line {number} is not a vote: {error}") from None
    if len(line) > MAX_LINE_BYTES:
        raise InvalidRow(f"line {number} is longer than {MAX_LINE_BYTES} bytes as an entry of the log.")
    return line
