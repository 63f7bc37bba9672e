"""Checkpoints of the vote table on disk: a controller that starts reads one, and of the log only what came after it.

A checkpoint is a copy of what the log says and can be deleted at any time. It is an uncompressed .npz file with a
checksum of each column, named by the last entry of the log that it holds; a new one is complete before it has its name.
"""

import contextlib
import io
import json
import logging
import os
import struct
import time
import zipfile
import zlib
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from controller.votes.boards.verdicts import Verdict
from controller.votes.boards.vote_flags import FLAGS
from controller.votes.boards.vote_table import DTYPES, TableSnapshot
from service_kit.logs import log_event
from wire.entry_ids import EntryId, entry_order

FORMAT: Final = 3
PATTERN: Final = "votes-*.npz"

_KEPT: Final = 2  #: checkpoints: if the newest cannot be read, the one before it can
_LEAST_NEW: Final = 1000  #: entries of the log since the last checkpoint; fewer are read again within 0.1 s
_LEAST_SHARE: Final = 0.01  #: of all entries: reading 20,000 of 2 million again takes a second
_LONGEST_S: Final = 3600.0  #: after this time fewer new entries are enough
_LEFTOVER_S: Final = 3600.0  #: age of an unfinished file at which its writer must be dead
_META: Final = "meta"
_LOCAL_HEADER: Final = struct.Struct("<26xHH")  #: of a member of a zip file: the lengths of its name and extra field
_LONGEST_HEADER: Final = 4096  #: of an array; numpy writes 128 bytes

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A vote table and the log that it is from: the id of the arena and the token of its last restoration."""

    votes: TableSnapshot
    arena: str | None
    token: str


class Checkpoints:
    """The checkpoints of one folder, which the controllers of one machine may share. Methods block on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._num_written = 0  #: entries of the log in the last checkpoint that was read or written
        self._written_at = time.monotonic()

    def is_due(self, checkpoint: Checkpoint) -> bool:
        """Whether enough has come since the last one that writing it is worth the disk's time."""
        num_new = abs(checkpoint.votes.num_seen - self._num_written)
        if time.monotonic() - self._written_at >= _LONGEST_S:
            return num_new > 0
        return num_new >= max(_LEAST_NEW, _LEAST_SHARE * checkpoint.votes.num_seen)

    def load(self) -> Checkpoint | None:
        """The newest checkpoint that can be read; None if there is none."""
        for path in self._newest_first():
            try:
                checkpoint = _read(path)
            except (OSError, ValueError, KeyError, TypeError, struct.error, zipfile.BadZipFile) as error:
                log_event(_logger, "checkpoint_unreadable", logging.WARNING, file=str(path), error=str(error))
                continue
            if checkpoint is not None:
                self._num_written = checkpoint.votes.num_seen
                return checkpoint
        return None

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and remove older ones. A disk that is full is no error: the log has everything."""
        self._num_written, self._written_at = checkpoint.votes.num_seen, time.monotonic()
        path = self._folder / f"votes-{checkpoint.votes.last_vote_id}.npz"
        partial = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                with partial.open("wb") as file:
                    np.savez(file, allow_pickle=False, **checkpoint.votes.columns, **{_META: _meta(checkpoint)})
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
            for old in self._newest_first()[_KEPT:]:
                old.unlink(missing_ok=True)
            for leftover in self._folder.glob(f"{PATTERN}.*.part"):
                if time.time() - leftover.stat().st_mtime > _LEFTOVER_S:
                    leftover.unlink(missing_ok=True)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            log_event(_logger, "checkpoint_not_written", logging.WARNING, file=str(path), error=str(error))

    def remove(self) -> None:
        """Remove all checkpoints: they are of another log."""
        for path in self._newest_first():
            path.unlink(missing_ok=True)
        self._num_written = 0

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob(PATTERN), key=_order, reverse=True)


def _order(path: Path) -> tuple[int, int]:
    try:
        return entry_order(EntryId(path.stem.removeprefix("votes-")))
    except ValueError:
        return (-1, 0)  # not ours


def _meta(checkpoint: Checkpoint) -> np.ndarray[Any, np.dtype[np.uint8]]:
    votes = checkpoint.votes
    values = {
        "format": FORMAT,
        "flags": FLAGS,
        "arena": checkpoint.arena,
        "token": checkpoint.token,
        "contestants": votes.contestants,
        "first_votes": votes.first_votes,
        "languages": votes.languages,
        "categories": votes.categories,
        "cohorts": votes.cohorts,
        "verdicts": [astuple(verdict) for verdict in votes.verdicts],
        "early_labels": votes.early_labels,
        "num_seen": votes.num_seen,
        "last_vote_id": votes.last_vote_id,
    }
    return np.frombuffer(json.dumps(values).encode(), np.uint8)


def _read(path: Path) -> Checkpoint | None:
    """None if it was written by another version of Agon. Raises OSError, ValueError, KeyError, TypeError,
    struct.error, BadZipFile unless the file is as it was written."""
    members = _members(path)
    meta = json.loads(members[_META].tobytes())
    if meta["format"] != FORMAT or tuple(meta["flags"]) != FLAGS:
        return None
    columns = {name: members[name] for name in DTYPES}
    num_votes = len(columns["battle"])
    if any(len(column) != num_votes or column.dtype != DTYPES[name] for name, column in columns.items()):
        raise ValueError("columns of another kind")
    votes = TableSnapshot(
        columns=columns,
        contestants=tuple((str(model), str(revision)) for model, revision in meta["contestants"]),
        first_votes=tuple(map(float, meta["first_votes"])),
        languages=tuple(meta["languages"]),
        categories=tuple(meta["categories"]),
        cohorts=tuple(meta["cohorts"]),
        verdicts=tuple(
            Verdict(time_, is_flag, by_admin, bits, voter, cohort, tuple(battles))
            for time_, is_flag, by_admin, bits, voter, cohort, battles in meta["verdicts"]
        ),
        early_labels=tuple((int(battle), int(bits)) for battle, bits in meta["early_labels"]),
        num_seen=int(meta["num_seen"]),
        last_vote_id=meta["last_vote_id"],
    )
    return Checkpoint(votes, meta["arena"], meta["token"])


def _members(path: Path) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """The arrays of an uncompressed .npz file, checked by their checksums. They are views of one buffer, which is read
    at once: np.load copies each array in small pieces, which takes three times as long."""
    buffer = np.fromfile(path, np.uint8).data
    arrays = {}
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            local = buffer[info.header_offset : info.header_offset + _LOCAL_HEADER.size]
            len_name, len_extra = _LOCAL_HEADER.unpack(local)
            begin = info.header_offset + _LOCAL_HEADER.size + len_name + len_extra
            member = buffer[begin : begin + info.file_size]
            if info.compress_type != zipfile.ZIP_STORED or zlib.crc32(member) != info.CRC:
                raise ValueError(f"{info.filename} is damaged")
            arrays[info.filename.removesuffix(".npy")] = _array(member)
    return arrays


def _array(member: memoryview) -> np.ndarray[Any, np.dtype[Any]]:
    """The array of one .npy member. Raises ValueError."""
    head = io.BytesIO(member[:_LONGEST_HEADER])
    version = np.lib.format.read_magic(head)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(head)
    if is_fortran or dtype.hasobject:
        raise ValueError("an array of another kind")
    return np.frombuffer(member, dtype, offset=head.tell()).reshape(shape)
