"""The vote log in Redis, from which every board is computed: votes, judgements about them (wire/judgements.py), what
voters add to them (wire/feedback.py), and labels of their kind (wire/labels.py).

Append-only; read in order, in pieces. Where an entry of a vote has its battle, any other entry has its key.
"""

import asyncio
import logging
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from controller.store.keys import Keys
from controller.store.store import Store, StreamEntry
from service_kit.logs import log_event
from wire.entry_ids import LOG_START, EntryId
from wire.feedback import FeedbackRecord
from wire.judgements import Judgement
from wire.labels import LabelRecord
from wire.log_records import LogRecord, key_of
from wire.votes import KEY_PREFIXES, VoteRecord

Int64Array = npt.NDArray[np.int64]

_INLINE = 20  #: entries that are parsed on the event loop
#: Votes read at once. The client of the store takes the reply apart on the event loop, some 6 ms for so many.
PIECE = 500
_NOT_STORED = {"vote_id", "judgement_id", "feedback_id", "label_id", "time", "conversations"}
_REST = 2.0  #: how long work without haste rests after a piece, by the time that it took

#: Type of a record, field of its id, and what its JSON holds: inside a string the quotes would be escaped.
_KINDS: tuple[tuple[type[LogRecord], str, str], ...] = (
    (Judgement, "judgement_id", '"kind":"judgement"'),
    (FeedbackRecord, "feedback_id", '"kind":"feedback"'),
    (LabelRecord, "label_id", '"kind":"label"'),
)
_VOTE: tuple[type[LogRecord], str, str] = (VoteRecord, "vote_id", "")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogEntry:
    """One entry of the log as it is stored; `record` is the JSON of a LogRecord without id and time."""

    vote_id: str
    battle_id: str  #: the key, if it is no vote; "" if the entry is damaged
    time_ms: int
    record: str
    voter_day: str | None  #: day of the key of the voter's pseudonym; None for an imported vote

    @property
    def is_damaged(self) -> bool:
        """True if it holds no readable vote: the store's file was changed where the store itself notices nothing."""
        return self.battle_id == ""

    @property
    def is_vote(self) -> bool:
        """True if it is a readable vote and no other record."""
        return not self.is_damaged and not self.battle_id.startswith(KEY_PREFIXES)

    @cached_property
    def content(self) -> LogRecord:
        """The record. Raises ValueError for a damaged entry."""
        kind, id_field = next((known for known in _KINDS if known[2] in self.record), _VOTE)[:2]
        text = f'{self.record[:-1]},"{id_field}":"{self.vote_id}","time":{self.time_ms / 1000}}}'
        return kind.model_validate_json(text)

    @property
    def vote(self) -> VoteRecord:
        """The vote. Raises ValueError for a damaged entry and for one of another kind."""
        if not isinstance(self.content, VoteRecord):
            raise ValueError("the entry is no vote")
        return self.content

    @property
    def judgement(self) -> Judgement:
        """The judgement. Raises ValueError for a damaged entry and for one of another kind."""
        if not isinstance(self.content, Judgement):
            raise ValueError("the entry is no judgement")
        return self.content


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
            entries=await self._parsed([(entry_id, _as_fields(flat)) for entry_id, flat in entries]),
        )

    async def _parsed(self, entries: list[StreamEntry]) -> tuple[LogEntry, ...]:
        """Many entries are parsed in a thread: a thousand take 20 ms, in which streams must go on."""

        def parse() -> tuple[LogEntry, ...]:
            return tuple(self._entry(entry_id, fields) for entry_id, fields in entries)

        return parse() if len(entries) <= _INLINE else await asyncio.to_thread(parse)

    async def digests(self) -> Int64Array:
        """`vote_digest` of every entry of the log, oldest first; 16 MB for two million votes. Takes its time: other
        work on the event loop goes first."""
        found = array("q")
        last_id, began = LOG_START, time.monotonic()
        while entries := await self._store.range_stream(self._keys.votes, last_id, count=PIECE):
            found.extend(_digest(entry_id, fields.get("record", "")) for entry_id, fields in entries)
            last_id = EntryId(entries[-1][0])
            await asyncio.sleep(_REST * (time.monotonic() - began))
            began = time.monotonic()
        return np.frombuffer(found, np.int64)

    async def store_start(self) -> str:
        """Names the start of the store: another one after each time that it has read its files."""
        with self._store.guard("info"):
            return str((await self._store.redis.info("server"))["run_id"])

    async def name_arena(self, arena: str) -> str:
        """Give the arena the id `arena` unless it has one. Returns the one that it has."""
        return str(await self._store.run("name_arena", [self._keys.arena], arena))

    async def read(self, after: EntryId = LOG_START, count: int = PIECE) -> list[LogEntry]:
        """The next `count` entries after the id `after`, oldest first, without damaged ones. Empty only at the end of
        the log."""
        while entries := await self._store.range_stream(self._keys.votes, after, count=count):
            read = await self._parsed(entries)
            if intact := [entry for entry in read if not entry.is_damaged]:
                return intact
            after = EntryId(read[-1].vote_id)
        return []

    async def newest(self, before: EntryId | None, count: int) -> list[LogEntry]:
        """The last `count` entries before the id `before`, or of the log, newest first, with damaged ones."""
        return list(await self._parsed(await self._store.newest_in_stream(self._keys.votes, before, count=count)))

    async def read_cast(self, after: EntryId) -> tuple[str, list[LogEntry]]:
        """The votes that were cast here, not imported, among the next PIECE entries after the id `after`; and the id of
        the last of these entries, or `after` at the end of the log."""
        entries = await self._store.range_stream(self._keys.votes, after, count=PIECE)
        cast = await self._parsed([entry for entry in entries if "voter_day" in entry[1]])
        return entries[-1][0] if entries else after, [entry for entry in cast if not entry.is_damaged]

    async def append_judgements(self, judgements: Sequence[Judgement], *, after: str = LOG_START) -> list[str] | None:
        """Append judgements and give them the store's time. Returns their ids, "" for one whose key the log has; None,
        with nothing appended, if the log has no entry `after`: it has lost votes since the caller read it."""
        parts = [part for judgement in judgements for part in (judgement.key, stored(judgement))]
        keys = [self._keys.votes, self._keys.logged_battles]
        answer = await self._store.run("append_judgements", keys, after, *parts)
        return None if answer is None else [str(entry_id) for entry_id in answer]

    async def entries(self, ids: Sequence[str]) -> list[LogEntry]:
        """The entries with these ids, as far as the log has them, in the order of `ids`."""
        found: list[LogEntry] = []
        for start in range(0, len(ids), PIECE):
            answer = await self._store.run("read_entries", [self._keys.votes], *ids[start : start + PIECE])
            found += await self._parsed([(entry_id, _as_fields(flat)) for entry_id, flat in answer])
        return found

    async def append_foreign(self, entries: Sequence[LogRecord]) -> int:
        """Append records of another log, except votes on battles, and others with keys, that this log has. Returns the
        number appended."""
        parts: list[str | int] = []
        for entry in entries:
            parts += [key_of(entry), stored(entry), round(entry.time * 1000)]
        keys = [self._keys.votes, self._keys.logged_battles]
        imported: int = await self._store.run_replicated("import_votes", self._keys.fence, keys, *parts)
        return imported

    def _entry(self, entry_id: str, fields: dict[str, str]) -> LogEntry:
        entry = _parse_entry(entry_id, fields)
        if entry.is_damaged and entry_id not in self.damaged_ids:
            self.damaged_ids.add(entry_id)
            log_event(_logger, "vote_damaged", logging.ERROR, vote=entry_id)
        return entry


def _as_fields(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def vote_digest(entry: LogEntry) -> int:
    """A number for the id and the record of a vote, equal in this process only."""
    return _digest(entry.vote_id, entry.record)


def _digest(vote_id: str, record: str) -> int:
    return hash((vote_id, record))


def stored(entry: LogRecord) -> str:
    """The JSON of a record in the log: without id and time, which the log's entry has itself."""
    return entry.model_dump_json(exclude=_NOT_STORED, exclude_none=True)


def _parse_entry(entry_id: str, fields: dict[str, str]) -> LogEntry:
    record = fields.get("record", "")
    try:
        entry = LogEntry(entry_id, "", int(fields["time"]), record, fields.get("voter_day"))
        return replace(entry, battle_id=key_of(entry.content))
    except (ValueError, KeyError, TypeError):
        return LogEntry(entry_id, "", 0, record, None)
