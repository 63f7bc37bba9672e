"""The vote log in Redis: the truth of the arena. Append-only; read in order, in pieces."""

import json
from collections.abc import AsyncGenerator, Sequence

from controller.store.keys import Keys
from controller.store.store import Store
from wire.entry_ids import LOG_START
from wire.votes import VoteRecord

PIECE = 1000


class VoteLog:
    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def last_id(self) -> str:
        """Id of the newest vote; LOG_START without votes."""
        with self._store.guard("last_vote"):
            entries = await self._store.redis.xrevrange(self._keys.votes, count=1)
        return str(entries[0][0]) if entries else LOG_START

    async def length(self) -> int:
        with self._store.guard("count_votes"):
            return int(await self._store.redis.xlen(self._keys.votes))

    async def read(self, after: str = LOG_START, count: int = PIECE) -> list[VoteRecord]:
        """Up to `count` votes after the id `after`, oldest first."""
        entries = await self._store.range_stream(self._keys.votes, after, count=count)
        return [parse_entry(entry_id, fields) for entry_id, fields in entries]

    async def read_all(self, after: str = LOG_START) -> AsyncGenerator[VoteRecord, None]:
        while votes := await self.read(after):
            for vote in votes:
                yield vote
            after = votes[-1].vote_id

    async def append_foreign(self, votes: Sequence[VoteRecord]) -> int:
        """Append votes of another log, except battles that stand in this one already. Returns how many were new."""
        parts: list[str | int] = []
        for vote in votes:
            parts += [vote.battle_id, stored(vote), round(vote.time * 1000)]
        imported: int = await self._store.run("import_votes", [self._keys.votes, self._keys.logged_battles], *parts)
        return imported


def stored(vote: VoteRecord) -> str:
    """The record as the log keeps it: the entry itself has the id and the time."""
    return vote.model_dump_json(exclude={"vote_id", "time", "conversations"}, exclude_none=True)


def parse_entry(entry_id: str, fields: dict[str, str]) -> VoteRecord:
    values = json.loads(fields["record"])
    return VoteRecord.model_validate({**values, "vote_id": entry_id, "time": int(fields["time"]) / 1000})
