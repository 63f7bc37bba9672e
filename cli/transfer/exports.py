"""Export of the vote log to a stream or a file. A file has its name when it is complete; until then it is NAME.part.

An export to JSON lines that was interrupted goes on after the last vote that its bookmark knows. A Parquet file cannot
be continued, and is begun anew.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx

from cli.errors import CliError
from cli.formats.log_files import LineWriter
from cli.formats.parquet import ParquetWriter
from cli.formats.schemas import Schema
from cli.transfer.arena_log import id_of, read_log
from cli.transfer.bookmark import Bookmark
from wire.log_records import parse_log_line

MARK_EVERY_LINES = 5000


class Export:
    """One export: what is read from which arena, and in which schema it is written."""

    def __init__(
        self, client: httpx.Client, schema: Schema, after: str, *, conversations: bool, patience_s: float
    ) -> None:
        self._client = client
        self._schema = schema
        self._after = after
        self._wants_texts = conversations or schema is not Schema.AGON
        self._patience_s = patience_s

    def to_stream(self, file: IO[bytes]) -> int:
        """Write lines; returns how many. Raises CliError."""
        writer = LineWriter(file, self._schema)
        num_lines = sum(writer.write_line(line) for line in self._lines(self._after))
        file.flush()
        return num_lines

    def to_file(self, path: Path) -> int:
        """Write the file `path`, as Parquet if that is its suffix; returns how many entries it has. Raises CliError."""
        partial = path.with_name(path.name + ".part")
        with _writing(path):
            num_entries = self._to_parquet(partial) if path.suffix == ".parquet" else self._to_lines(path, partial)
            partial.replace(path)
        return num_entries

    def _to_parquet(self, partial: Path) -> int:
        num_rows = 0
        writer = ParquetWriter(partial, self._schema)
        try:
            for line in self._lines(self._after):
                num_rows += writer.write(parse_log_line(line))
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        writer.close()
        return num_rows

    def _to_lines(self, path: Path, partial: Path) -> int:
        transfer = {
            "url": str(self._client.base_url),
            "schema": self._schema,
            "after": self._after,
            "conversations": self._wants_texts,
        }
        bookmark = Bookmark(path.with_name(path.name + ".export"), transfer)
        position = (bookmark.read() if partial.exists() else None) or {"last_id": self._after, "bytes": 0, "lines": 0}
        num_lines: int = position["lines"]
        with open(partial, "ab") as file:
            os.truncate(partial, position["bytes"])
            writer = LineWriter(file, self._schema)
            for number, line in enumerate(self._lines(position["last_id"]), start=1):
                num_lines += writer.write_line(line)
                if number % MARK_EVERY_LINES == 0:
                    file.flush()
                    bookmark.set({"last_id": id_of(line), "bytes": file.tell(), "lines": num_lines})
        bookmark.remove()
        return num_lines

    def _lines(self, after: str) -> Iterator[bytes]:
        return read_log(self._client, after, conversations=self._wants_texts, patience_s=self._patience_s)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}.") from None
