"""The vote log in Redis, from which every board is computed. Append-only; read in order, in pieces."""

import json
from collections.abc import Sequence

from controller.store.keys import Keys
from controller.store.store import Store
from wire.entry_ids import LOG_START, EntryId
from wire.votes import VoteRecord

PIECE = 1000  #: votes read or imported at once, so that no command blocks the store for long


class VoteLog:
    """Reads and imports votes; casting one is in vote_casting.py. Every method raises ApiError STORE_UNAVAILABLE."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def last_id(self) -> EntryId:
        """Id of the newest vote; LOG_START without votes."""
        with self._store.guard("last_vote"):
            entries = await self._store.redis.xrevrange(self._keys.votes, count=1)
        return EntryId(str(entries[0][0])) if entries else LOG_START

    async def length(self) -> int:
        """Number of votes in the log."""
        with self._store.guard("count_votes"):
            return int(await self._store.redis.xlen(self._keys.votes))

    async def read(self, after: EntryId = LOG_START, count: int = PIECE) -> list[VoteRecord]:
        """Up to `count` votes after the id `after`, oldest first."""
        entries = await self._store.range_stream(self._keys.votes, after, count=count)
        return [parse_entry(entry_id, fields) for entry_id, fields in entries]

    async def append_foreign(self, votes: Sequence[VoteRecord]) -> int:
        """Append votes of another log, except those of battles that this log has. Returns the number appended."""
        parts: list[str | int] = []
        for vote in votes:
            parts += [vote.battle_id, stored(vote), round(vote.time * 1000)]
        imported: int = await self._store.run("import_votes", [self._keys.votes, self._keys.logged_battles], *parts)
        return imported


def stored(vote: VoteRecord) -> str:
    """The JSON of a record in the log: without id and time, which the log's entry has itself."""
    return vote.model_dump_json(exclude={"vote_id", "time", "conversations"}, exclude_none=True)


def parse_entry(entry_id: str, fields: dict[str, str]) -> VoteRecord:
    """The vote of one entry of the log. Raises ValueError for an entry that is not a vote."""
    values = json.loads(fields["record"])
    return VoteRecord.model_validate({**values, "vote_id": entry_id, "time": int(fields["time"]) / 1000})
