"""Import of a file of votes, of any size, which goes on where it was interrupted."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from cli.errors import CliError
from cli.formats.log_files import read_lines
from cli.formats.rows import STANDARD_INPUT
from cli.formats.schemas import InvalidRow, SourceSchema
from cli.transfer.arena_log import Sent, send_votes
from cli.transfer.bookmark import Bookmark
from cli.transfer.left_out import LeftOut

_TELL_EVERY_S = 10.0


@dataclass(frozen=True)
class Progress:
    """What an import has done: entries of the log, and lines or rows of the file. `checked_from` is where its last
    piece began."""

    imported: int = 0
    skipped: int = 0
    num_read: int = 0
    checked_from: int = 0

    def plus(self, sent: Sent) -> "Progress":
        """The progress after a further piece."""
        return Progress(
            self.imported + sent.imported, self.skipped + sent.skipped, sent.last_number, checked_from=self.num_read
        )


def import_file(
    client: httpx.Client, source: Path, schema: SourceSchema, *, patience_s: float, left_out: LeftOut | None = None
) -> Progress:
    """Append the entries of `source` to the log of the arena. Raises CliError; the same call then goes on.

    Rows that are no votes go to `left_out`; without it the first one ends the import, and what stands before it is in
    the log. After an interruption the last piece that the arena took is sent again. If the log lacks it, the log was
    replaced meanwhile, and the import begins anew.
    """
    bookmark = _bookmark(source, str(client.base_url), schema)
    done = Progress() if bookmark is None else _progress(bookmark)
    if done.num_read:
        print(f"going on after line {done.num_read} of {source}", file=sys.stderr)
        last_piece = read_lines(source, schema, skip=done.checked_from, leave_out=lambda raw, reason: None)
        first = next(send_votes(client, last_piece, patience_s), None)
        if first is None or first.imported:
            print("the log has lost what was imported before: beginning anew", file=sys.stderr)
            done = Progress()
    if left_out is not None:
        left_out.begin(after=done.num_read)
    lines = read_lines(source, schema, skip=done.num_read, leave_out=None if left_out is None else left_out.add)
    told_at = time.monotonic()
    try:
        for sent in send_votes(client, lines, patience_s):
            done = done.plus(sent)
            if bookmark is not None:
                bookmark.set(vars(done))
            if time.monotonic() - told_at > _TELL_EVERY_S:
                told_at = time.monotonic()
                print(f"{done.num_read} lines of {source} are done", file=sys.stderr)
    except InvalidRow as error:
        raise CliError(
            f"{str(error).removesuffix('.')}. Before it {done.imported} were imported and {done.skipped} were there"
            " already. --skip-invalid leaves out such lines and goes on."
        ) from None
    if bookmark is not None:
        bookmark.remove()
    return done


def _bookmark(source: Path, url: str, schema: SourceSchema) -> Bookmark | None:
    """The bookmark of an import of this file, as it is now, into this arena; None for standard input."""
    if str(source) == STANDARD_INPUT:
        return None
    try:
        status = source.stat()
    except OSError as error:
        raise CliError(f"cannot read {source}: {error.strerror}.") from None
    transfer = {"url": url, "schema": schema, "bytes": status.st_size, "changed_ns": status.st_mtime_ns}
    return Bookmark(source.with_name(source.name + ".import"), transfer)


def _progress(bookmark: Bookmark) -> Progress:
    try:
        return Progress(**(bookmark.read() or {}))
    except TypeError:
        return Progress()
