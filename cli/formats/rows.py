"""The rows of a file, one at a time: JSON lines, the elements of a JSON array, CSV with a header, or Parquet."""

import codecs
import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cli.errors import CliError
from cli.formats.parquet import is_parquet, read_rows

MAX_LINE_BYTES = 16_000_000  #: longer ones the controller refuses
STANDARD_INPUT = "-"

_PIECE_BYTES = 1_000_000  #: of an array that is read at once


@dataclass(frozen=True)
class RawRow:
    """A row before it is understood. `content`: the bytes of a line, or the values of a row. `error`: why there is no
    content."""

    number: int
    content: bytes | Any = b""
    error: str | None = None


def read_raw_rows(source: Path, *, skip: int = 0) -> Iterator[RawRow]:
    """The rows of a file without its first `skip` ones. Blank lines are no rows, but count. Raises CliError for a file
    that cannot be read, also in the middle."""
    if str(source) != STANDARD_INPUT and _is_parquet(source):
        for number, row in enumerate(read_rows(source, skip=skip), start=skip + 1):
            yield RawRow(number, row)
        return
    with _opened(source) as file:
        if source.suffix.lower() == ".csv":
            rows = _csv_rows(file, source)
        else:
            rows = _array_rows(file, source) if _is_array(file) else _line_rows(file, source)
        for raw in rows:
            if raw.number > skip:
                yield raw


def _line_rows(file: IO[bytes], source: Path) -> Iterator[RawRow]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            yield RawRow(number, error=f"line {number} of {source} is longer than {MAX_LINE_BYTES} bytes.")
        elif line.strip():
            yield RawRow(number, line.removesuffix(b"\n"))


def _array_rows(file: IO[bytes], source: Path) -> Iterator[RawRow]:
    """The elements of an array, counted from 1. What is no JSON ends it: where the next one begins is unknown."""
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    decoder = json.JSONDecoder()
    text, number, has_begun = "", 0, False
    while True:
        piece = file.read(_PIECE_BYTES)
        try:
            text += decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            raise CliError(f"element {number + 1} of the array in {source} is no text: {error}") from None
        start = 0 if has_begun else text.index("[") + 1
        has_begun = True
        while (at := _after_blanks(text, start)) < len(text):
            if text[at] == "]":
                return
            if number:
                if text[at] != ",":
                    raise CliError(f"element {number} of the array in {source} is followed by {text[at]!r}.")
                at = _after_blanks(text, at + 1)
            try:
                value, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if piece and len(text) - at <= MAX_LINE_BYTES:
                    break  # more of it may come
                raise CliError(f"element {number + 1} of the array in {source} is no JSON: {error}") from None
            if piece and end == len(text):
                break  # a number may go on
            start, number = end, number + 1
            yield RawRow(number, value)
        text = text[start:]
        if not piece:
            raise CliError(f"the array in {source} has no end after element {number}.")


def _after_blanks(text: str, start: int) -> int:
    while text[start : start + 1].isspace():
        start += 1
    return start


def _csv_rows(file: IO[bytes], source: Path) -> Iterator[RawRow]:
    """Rows of a table, counted from 1 without the header. Empty cells are absent."""
    csv.field_size_limit(MAX_LINE_BYTES)
    with io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True)
        number = 0
        while True:
            number += 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                yield RawRow(number, error=f"line {number} is no row of a table: {error}")
                continue
            except UnicodeDecodeError as error:
                raise CliError(f"row {number} of {source} is no text: {error}") from None
            if row is None:
                return
            if None in row or None in row.values():
                yield RawRow(number, error=f"line {number} is not a vote: it has not as many cells as the header")
            else:
                yield RawRow(number, {name: value for name, value in row.items() if value != ""})


def _is_array(file: IO[bytes]) -> bool:
    """Whether the first character is that of an array."""
    if not isinstance(file, io.BufferedReader):
        return False
    start = file.peek(4096)[:4096]
    return start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def _is_parquet(source: Path) -> bool:
    try:
        return is_parquet(source)
    except OSError as error:
        raise CliError(f"cannot read {source}: {error.strerror}.") from None


@contextmanager
def _opened(source: Path) -> Iterator[IO[bytes]]:
    if str(source) == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        with open(source, "rb") as file:
            yield file
    except OSError as error:
        raise CliError(f"cannot read {source}: {error.strerror}.") from None
