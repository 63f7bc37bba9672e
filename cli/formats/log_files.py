"""Files of votes, read and written an entry at a time, so that their size does not matter."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from cli.errors import CliError
from cli.formats.parquet import is_parquet, read_rows
from cli.formats.schemas import TO_ROW, Schema, SourceSchema, detect, from_row, parse_row
from wire.log_records import LogRecord, parse_log_line
from wire.votes import VoteRecord

MAX_LINE_BYTES = 16_000_000  #: longer ones the controller refuses
STANDARD_INPUT = "-"


@dataclass(frozen=True)
class NumberedLine:
    """An entry as a line of our own schema, without a line break. `number` is that of its line or row, from 1."""

    number: int
    text: bytes


def read_lines(source: Path, schema: SourceSchema = SourceSchema.AUTO, *, skip: int = 0) -> Iterator[NumberedLine]:
    """The entries of a file as lines of our own schema, without those of its first `skip` lines or rows. Raises
    CliError with the number of a bad line."""
    if _is_stream(source) or not _is_parquet(source):
        yield from _lines_of_text(source, schema, skip)
        return
    for number, row in enumerate(read_rows(source, skip=skip), start=skip + 1):
        schema = detect(row) if schema is SourceSchema.AUTO else schema
        yield NumberedLine(number, _as_line(from_row(schema, row, number)))


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


def _lines_of_text(source: Path, schema: SourceSchema, skip: int) -> Iterator[NumberedLine]:
    with _opened(source) as file:
        for number, line in enumerate(_raw_lines(file, source), start=1):
            if number <= skip or not line.strip():
                continue
            row: dict[str, Any] | None = None
            if schema is SourceSchema.AUTO:
                row = parse_row(line, number)
                schema = detect(row)
            if schema is SourceSchema.AGON and b'"kind"' not in line:
                _check_vote(line, number)
                yield NumberedLine(number, line)
            else:
                entry = from_row(schema, parse_row(line, number) if row is None else row, number)
                yield NumberedLine(number, _as_line(entry))


def _check_vote(line: bytes, number: int) -> None:
    """A vote in our own schema is sent as it is. Raises CliError."""
    try:
        VoteRecord.model_validate_json(line)
    except ValidationError:
        from_row(SourceSchema.AGON, parse_row(line, number), number)  # raises with the reason
        raise CliError(f"line {number} is not a vote") from None


def _raw_lines(file: IO[bytes], source: Path) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise CliError(f"line {number} of {source} is longer than {MAX_LINE_BYTES} bytes.")
        yield line.removesuffix(b"\n")


def _as_line(entry: LogRecord) -> bytes:
    return entry.model_dump_json(exclude_none=True).encode()


def _is_stream(source: Path) -> bool:
    return str(source) == STANDARD_INPUT


def _is_parquet(source: Path) -> bool:
    try:
        return is_parquet(source)
    except OSError as error:
        raise CliError(f"cannot read {source}: {error.strerror}.") from None


@contextmanager
def _opened(source: Path) -> Iterator[IO[bytes]]:
    if _is_stream(source):
        yield sys.stdin.buffer
        return
    try:
        with open(source, "rb") as file:
            yield file
    except OSError as error:
        raise CliError(f"cannot read {source}: {error.strerror}.") from None
