"""The file format of the journal: one JSON object a line, each with a hash that covers all lines before it.

The first line names the arena. Every other line is one vote, with the fields of its entry in the vote log. The last
field, `hash`, is SHA-256 of the previous line's hash and of the line up to this field. A line without a line break at
the end of the file was being written when the process or the machine died; its vote was not acknowledged. How far a
journal was checked is remembered beside it (scan_position.py). Knows no store.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.errors import ConfigurationError, ForeignJournal, JournalDamaged
from controller.votes.journal.scan_position import Scan, forget, recall, remember
from controller.votes.vote_log import LogEntry
from wire.entry_ids import LOG_START, entry_order

FORMAT = 1
PATTERN = "votes-*.jsonl"
REMEMBER_EVERY = 10_000  #: votes; checking as many lines takes a start some 50 ms. Smaller journals are checked whole

_MAX_WRITERS = 64  #: controllers that may share one folder
_HASH_START = b',"hash":"'
_HASH_END = b'"}'
_TAIL_BYTES = len(_HASH_START) + 64 + len(_HASH_END)
_END_OF_LINE = _HASH_START + b"%s" + _HASH_END + b"\n"
_VOTE_START = b'{"id":"'


class JournalFile:
    """One open journal. Owns its lock and its end. Methods block on the disk; never two at a time."""

    def __init__(
        self, path: Path, descriptor: int, scan: Scan, *, remembered: Scan | None = None, keeps_position: bool = True
    ) -> None:
        """`remembered`: the part of `scan` that was taken from the remembered position; None: every line was read."""
        self.path = path
        self._scan = replace(scan, num_torn_bytes=0)  #: what a scan of the file would say now
        self._num_remembered = remembered.num_votes if remembered is not None else 0
        self._keeps_position = keeps_position
        self.arena = scan.arena
        self.num_votes = scan.num_votes
        self.last_id = scan.last_id
        self.num_torn_bytes = scan.num_torn_bytes  #: cut off at the opening
        self._descriptor = descriptor
        self._is_clean = scan.num_torn_bytes == 0  #: False: bytes after the end must be cut off before the next write

    @classmethod
    def open(cls, folder: Path) -> "JournalFile":
        """Open the first journal of `folder` that no other process holds; makes folder and file where there is none.
        Checks the lines after the remembered position, or all if there is none.

        Raises JournalDamaged, and ConfigurationError if the folder cannot be used.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for number in range(1, _MAX_WRITERS + 1):
                path = folder / f"votes-{number}.jsonl"
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    continue
                try:
                    sync_folder(folder)
                    remembered = recall(path, _END_OF_LINE)
                    file = cls(path, descriptor, scan(path, remembered), remembered=remembered)
                    file._remember()
                    return file
                except BaseException:
                    os.close(descriptor)
                    raise
        except OSError as error:
            raise ConfigurationError(f"the journal in {folder} cannot be used: {error.strerror}.") from None
        raise ConfigurationError(f"all {_MAX_WRITERS} journals in {folder} are held by other processes.")

    def require_arena(self, arena: str) -> None:
        """Write the first line of an empty journal. Raises ForeignJournal if it names another arena, OSError."""
        if self.arena is None:
            self._write([b'{"journal":%d,"arena":%s' % (FORMAT, json.dumps(arena).encode())])
            self.arena = arena
            self._scan = replace(self._scan, arena=arena)
        elif self.arena != arena:
            raise ForeignJournal(self.path)

    def append(self, entries: Sequence[LogEntry], *, position: str) -> None:
        """Write `entries` and wait until they are on disk. The log is then known up to the id `position`.

        Raises OSError; then nothing was added, and the same call may be made again.
        """
        self._write([_vote_line(entry) for entry in entries])
        last_id = max((self._scan.last_id, *(entry.vote_id for entry in entries)), key=entry_order)
        self._scan = replace(self._scan, num_votes=self._scan.num_votes + len(entries), last_id=last_id)
        self.num_votes += len(entries)
        self.last_id = position
        self._remember()

    def resume(self, *, num_votes: int, position: str) -> None:
        """Continue after a comparison with the whole log: the number of its entries, and its last id."""
        self.num_votes = num_votes
        self.last_id = position

    def distrust(self) -> None:
        """A line is not as it was written: the next start checks, and refuses, the whole journal."""
        self._keeps_position = False
        forget(self.path)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)

    def _remember(self) -> None:
        if self._keeps_position and self._scan.num_votes - self._num_remembered >= REMEMBER_EVERY:
            remember(self.path, self._scan)
            self._num_remembered = self._scan.num_votes

    def _write(self, bodies: Sequence[bytes]) -> None:
        if not self._is_clean:
            os.ftruncate(self._descriptor, self._scan.size)
        self._is_clean = False
        lines, last = [], self._scan.last_hash
        for body in bodies:
            last = _chained(last, body)
            lines.append(body + _HASH_START + last.encode() + _HASH_END + b"\n")
        rest = memoryview(b"".join(lines))
        end = self._scan.size
        while rest:
            written = os.pwrite(self._descriptor, rest, end)
            rest, end = rest[written:], end + written
        os.fdatasync(self._descriptor)
        self._scan, self._is_clean = replace(self._scan, size=end, last_hash=last), True


def scan(path: Path, start: Scan | None = None) -> Scan:
    """Check every line of a journal, or those after `start`. Raises JournalDamaged with the first bad line, OSError."""
    found = start or Scan(None, 0, LOG_START, "", 0)
    arena, num_votes, last_hash, size, torn = found.arena, found.num_votes, found.last_hash, found.size, 0
    last_id = found.last_id
    for line in _checked_lines(path, start):
        if not line.is_complete:
            torn = len(line.body)
            break
        if line.number == 1:
            arena = _header(path, line)
        else:
            num_votes += 1
            last_id = max(last_id, _vote_id(path, line), key=entry_order)
        last_hash, size = line.hash, line.end
    return Scan(arena, num_votes, last_id, last_hash, size, torn)


def read_entries(path: Path, *, arena: str | None = None) -> Iterator[LogEntry]:
    """The votes of a journal in the order of the file, without a torn last line. Raises JournalDamaged, OSError, and
    ForeignJournal unless it belongs to `arena`, if that is given."""
    for line in _checked_lines(path):
        if line.is_complete and line.number == 1:
            if _header(path, line) != (arena or _header(path, line)):
                raise ForeignJournal(path)
        elif line.is_complete:
            yield _parse_vote(line.body)


def salvage(path: Path) -> tuple[str | None, list[LogEntry], int]:
    """Arena, readable votes and number of unreadable lines of a damaged journal. Raises OSError.

    A line is readable if its own hash fits the line before it, or if the hash of the line after it fits. So a changed
    byte costs one vote, or two where it is a line break, and a lost line costs the one after it.
    """
    arena: str | None = None
    votes, num_bad = [], 0
    doubtful: bytes | None = None  #: the body of the line before, if its own hash did not fit
    previous: list[str] = [""]  #: hashes that the line before may have
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            body, stated = _split(raw)
            fitting = next((last for last in previous if _chained(last, body) == stated), None)
            if doubtful is not None:
                # The line before is intact if this line was chained to the hash that it should have had.
                is_intact = fitting is not None and fitting != previous[0]
                if is_intact and (vote := _try_vote(doubtful)) is not None:
                    votes.append(vote)
                else:
                    num_bad += 1
                doubtful = None
            if fitting is not None:
                if number == 1:
                    arena = _try_header(body)
                elif (vote := _try_vote(body)) is not None:
                    votes.append(vote)
                else:
                    num_bad += 1
                previous = [stated]
            else:
                doubtful = body
                previous = [stated, *(_chained(last, body) for last in previous)]
    if doubtful is not None:
        num_bad += 1
    return arena, votes, num_bad


def write_new(path: Path, arena: str, votes: Sequence[LogEntry]) -> None:
    """Write a whole journal under a temporary name and rename it to `path`. Raises OSError."""
    partial = path.with_name(path.name + ".part")
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    file = JournalFile(partial, descriptor, Scan(None, 0, LOG_START, "", 0), keeps_position=False)
    try:
        file.require_arena(arena)
        file.append(votes, position=LOG_START)
    finally:
        file.close()
    partial.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names of new files in `folder` durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Line:
    """One line. `body` is the line up to its hash; `end` the position in the file after it."""

    number: int
    body: bytes
    hash: str
    end: int
    is_complete: bool


def _checked_lines(path: Path, start: Scan | None = None) -> Iterator[_Line]:
    last, end, first = ("", 0, 1) if start is None else (start.last_hash, start.size, start.num_votes + 2)
    with open(path, "rb") as file:
        file.seek(end)
        for number, raw in enumerate(file, start=first):
            end += len(raw)
            if not raw.endswith(b"\n"):
                yield _Line(number, raw, "", end, is_complete=False)
                return
            body, stated = _split(raw)
            if _chained(last, body) != stated:
                raise JournalDamaged(path, number, "its hash does not fit its text and the lines before it")
            last = stated
            yield _Line(number, body, stated, end, is_complete=True)


def _split(raw: bytes) -> tuple[bytes, str]:
    """Body and stated hash of a line; "?", which fits nothing, if the hash is not where it should be."""
    text = raw.removesuffix(b"\n")
    body, tail = text[:-_TAIL_BYTES], text[-_TAIL_BYTES:]
    if not (tail.startswith(_HASH_START) and tail.endswith(_HASH_END)):
        return body, "?"
    return body, tail[len(_HASH_START) : -len(_HASH_END)].decode("ascii", errors="replace")


def _chained(last: str, body: bytes) -> str:
    return hashlib.sha256(last.encode() + body).hexdigest()


def _vote_line(entry: LogEntry) -> bytes:
    fields = {"id": entry.vote_id, "battle": entry.battle_id, "time": entry.time_ms, "record": entry.record}
    if entry.voter_day is not None:
        fields["voter_day"] = entry.voter_day
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()[:-1]


def _parse_vote(body: bytes) -> LogEntry:
    fields: dict[str, Any] = json.loads(body + b"}")
    return LogEntry(
        vote_id=fields["id"],
        battle_id=fields["battle"],
        time_ms=fields["time"],
        record=fields["record"],
        voter_day=fields.get("voter_day"),
    )


def _try_vote(body: bytes) -> LogEntry | None:
    try:
        return _parse_vote(body)
    except (ValueError, KeyError, TypeError):
        return None


def _try_header(body: bytes) -> str | None:
    try:
        header = json.loads(body + b"}")
        return str(header["arena"]) if header["journal"] == FORMAT else None
    except (ValueError, KeyError, TypeError):
        return None


def _header(path: Path, line: _Line) -> str:
    arena = _try_header(line.body)
    if arena is None:
        raise JournalDamaged(path, line.number, f"it does not begin a journal of format {FORMAT}")
    return arena


def _vote_id(path: Path, line: _Line) -> str:
    """The id, without parsing the line: the hash has shown that the line is as it was written."""
    if not line.body.startswith(_VOTE_START):
        raise JournalDamaged(path, line.number, "it is no vote")
    return line.body[len(_VOTE_START) : line.body.index(b'"', len(_VOTE_START))].decode()
