"""The vote log in Redis, from which every board is computed. Append-only; read in order, in pieces."""

import json
import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from controller.store.keys import Keys
from controller.store.store import Store
from service_kit.logs import log_event
from wire.entry_ids import LOG_START, EntryId
from wire.votes import VoteRecord

Int64Array = npt.NDArray[np.int64]

PIECE = 1000  #: votes read or imported at once, so that no command blocks the store for long

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogEntry:
    """One entry of the log as it is stored; `record` is the JSON of the vote without id and time."""

    vote_id: str
    battle_id: str  #: "" if the entry is damaged
    time_ms: int
    record: str
    voter_day: str | None  #: day of the key of the voter's pseudonym; None for an imported vote

    @property
    def is_damaged(self) -> bool:
        """True if it holds no readable vote: the store's file was changed where the store itself notices nothing."""
        return self.battle_id == ""

    @cached_property
    def vote(self) -> VoteRecord:
        """The vote. Raises ValueError for a damaged entry."""
        values = json.loads(self.record)
        return VoteRecord.model_validate({**values, "vote_id": self.vote_id, "time": self.time_ms / 1000})


@dataclass(frozen=True)
class LogState:
    """The log at one moment, with the entries that were asked for.

    Votes are only appended, so a reader that has read `length` votes up to `last_id`, under the same `token`, has read
    this log. Any other number means that the log was replaced.
    """

    arena: str | None  #: id of the arena; None in an empty store, and where no controller keeps a journal
    token: str  #: of the last restoration, "" if there was none
    restored_at: float | None  #: Unix time of the last restoration
    num_restored: int  #: votes that it brought back
    length: int
    last_id: str
    entries: tuple[LogEntry, ...]


class VoteLog:
    """Reads and imports votes; casting one is in vote_casting.py. Every method raises ApiError STORE_UNAVAILABLE."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self.damaged_ids: set[str] = set()  #: of the damaged entries that a reader has met

    async def state(self, after: str = LOG_START, count: int = PIECE) -> LogState:
        """The log now, with up to `count` entries after the id `after`, oldest first."""
        keys = [self._keys.votes, self._keys.restoration, self._keys.arena]
        arena, token, time_ms, restored, length, last_id, entries = await self._store.run(
            "read_votes", keys, after, count
        )
        return LogState(
            arena=arena or None,
            token=token,
            restored_at=int(time_ms) / 1000 if time_ms else None,
            num_restored=int(restored or 0),
            length=length,
            last_id=last_id or LOG_START,
            entries=tuple(
                self._entry(entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in entries
            ),
        )

    async def digests(self) -> Int64Array:
        """`vote_digest` of every entry of the log, oldest first; 16 MB for two million votes."""
        found = array("q")
        last_id = LOG_START
        while entries := await self._store.range_stream(self._keys.votes, last_id, count=PIECE):
            found.extend(_digest(entry_id, fields.get("record", "")) for entry_id, fields in entries)
            last_id = EntryId(entries[-1][0])
        return np.frombuffer(found, np.int64)

    async def store_start(self) -> str:
        """Names the start of the store: another one after each time that it has read its files."""
        with self._store.guard("info"):
            return str((await self._store.redis.info("server"))["run_id"])

    async def name_arena(self, arena: str) -> str:
        """Give the arena the id `arena` unless it has one. Returns the one that it has."""
        return str(await self._store.run("name_arena", [self._keys.arena], arena))

    async def read(self, after: EntryId = LOG_START, count: int = PIECE) -> list[VoteRecord]:
        """Votes among the next `count` entries after the id `after`, oldest first, without damaged ones. Empty only at
        the end of the log."""
        while entries := await self._store.range_stream(self._keys.votes, after, count=count):
            read = [self._entry(entry_id, fields) for entry_id, fields in entries]
            if votes := [entry.vote for entry in read if not entry.is_damaged]:
                return votes
            after = EntryId(read[-1].vote_id)
        return []

    async def append_foreign(self, votes: Sequence[VoteRecord]) -> int:
        """Append votes of another log, except those of battles that this log has. Returns the number appended."""
        parts: list[str | int] = []
        for vote in votes:
            parts += [vote.battle_id, stored(vote), round(vote.time * 1000)]
        imported: int = await self._store.run("import_votes", [self._keys.votes, self._keys.logged_battles], *parts)
        return imported

    def _entry(self, entry_id: str, fields: dict[str, str]) -> LogEntry:
        entry = _parse_entry(entry_id, fields)
        if entry.is_damaged and entry_id not in self.damaged_ids:
            self.damaged_ids.add(entry_id)
            log_event(_logger, "vote_damaged", logging.ERROR, vote=entry_id)
        return entry


def vote_digest(entry: LogEntry) -> int:
    """A number for the id and the record of a vote, equal in this process only."""
    return _digest(entry.vote_id, entry.record)


def _digest(vote_id: str, record: str) -> int:
    return hash((vote_id, record))


def stored(vote: VoteRecord) -> str:
    """The JSON of a record in the log: without id and time, which the log's entry has itself."""
    return vote.model_dump_json(exclude={"vote_id", "time", "conversations"}, exclude_none=True)


def _parse_entry(entry_id: str, fields: dict[str, str]) -> LogEntry:
    record = fields.get("record", "")
    try:
        entry = LogEntry(
            vote_id=entry_id,
            battle_id=json.loads(record)["battle_id"],
            time_ms=int(fields["time"]),
            record=record,
            voter_day=fields.get("voter_day"),
        )
        return entry if entry.vote.battle_id else replace(entry, battle_id="")
    except (ValueError, KeyError, TypeError):
        return LogEntry(entry_id, "", 0, record, None)
