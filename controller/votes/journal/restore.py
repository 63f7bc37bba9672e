"""Brings votes back into the log: compares the log with journals, and replaces it by the union where they differ.

What differs is decided in comparison.py. The union is built beside the log, with the votes' own ids, and swapped in by
one script, which refuses if the log was replaced or cut meanwhile; appends are no obstacle. So several controllers may
do this at once, and readers see the log before or after. Needs about 1.5 kB of memory for each vote that is brought
back.
"""

import asyncio
import heapq
import json
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.store.keys import BUILT_LOG_TTL_MS, Keys
from controller.store.store import Store, unavailable
from controller.votes.journal.comparison import Differences, LoggedVote, Source, find_differences, logged_vote
from controller.votes.vote_log import PIECE, LogEntry, LogState, VoteLog
from wire.entry_ids import LOG_START, entry_order
from wire.ids import BattleId

_TRIES = 20  #: attempts while others replace the log, too
_BATTLES_AT_ONCE = 200


@dataclass(frozen=True)
class Restored:
    """The result: how many votes came back, the log afterwards, and the ids of its readable votes."""

    num_restored: int
    state: LogState
    vote_ids: frozenset[str]


class LogRestorer:
    """Replaces the log; owns the keys `restoration` and `built_log`. Methods raise ApiError STORE_UNAVAILABLE.

    `battle_ttl_s`: for how long votes are sent again, and a battle that comes back is kept.
    """

    def __init__(self, store: Store, keys: Keys, log: VoteLog, *, battle_ttl_s: float) -> None:
        self._store = store
        self._keys = keys
        self._log = log
        self._battle_ttl_ms = round(battle_ttl_s * 1000)

    async def restore(self, sources: Sequence[Source], *, are_exact: bool = True) -> Restored:
        """Bring back every vote of `sources` that the log lacks or has wrong (comparison.py). A damaged entry gives way
        to the vote with its id. Raises what a source raises; the log is unchanged then.
        """
        num_restored = 0
        for _ in range(_TRIES):
            scanned = await self._scan()
            if scanned is None:
                continue
            state, logged = scanned
            found = await asyncio.to_thread(find_differences, sources, logged, are_exact=are_exact)
            if not found.lacking:
                return Restored(num_restored, state, frozenset(known.vote_id for known in logged.values()))
            if await self._replace(state, found):
                num_restored += len(found.lacking)
        raise unavailable()

    async def _scan(self) -> tuple[LogState, dict[str, LoggedVote]] | None:
        """The log, and its votes by battle; None if it was replaced while it was read."""
        logged: dict[str, LoggedVote] = {}
        num_votes, token = 0, None
        last_id: str = LOG_START
        while True:
            state = await self._log.state(last_id)
            if token not in (None, state.token):
                return None
            token = state.token
            for entry in state.entries:
                if not entry.is_damaged:
                    logged.setdefault(entry.battle_id, logged_vote(entry))
                last_id = entry.vote_id
            num_votes += len(state.entries)
            if len(state.entries) < PIECE:
                return (state, logged) if (num_votes, last_id) == (state.length, state.last_id) else None

    async def _replace(self, state: LogState, found: Differences) -> bool:
        """Build the log without its differences and swap it in; False if the log is another one by now."""
        lacking = found.lacking
        superseded = lacking.keys() | found.invented
        await self._mark_battles(lacking.values())
        token = secrets.token_hex(8)
        built = _BuiltLog(self._store, self._keys, token)
        pending = sorted(lacking.values(), key=_order)
        replaced_ids = {entry.vote_id for entry in pending}
        last_id: str = LOG_START
        while True:
            read = await self._log.state(last_id)
            if read.token != state.token:
                return False
            present = [entry for entry in read.entries if _order(entry) <= entry_order(state.last_id)]
            is_last = len(present) < PIECE
            num_now = len(pending) if is_last else _count_up_to(pending, present[-1])
            kept = [
                entry
                for entry in present
                if (entry.vote_id not in replaced_ids if entry.is_damaged else entry.battle_id not in superseded)
            ]
            await built.append(heapq.merge(kept, pending[:num_now], key=_order))
            pending = pending[num_now:]
            if is_last:
                break
            last_id = present[-1].vote_id
        answer = await self._store.run(
            "replace_log",
            [self._keys.votes, self._keys.built_log(token), self._keys.restoration],
            state.length,
            state.last_id,
            state.token,
            built.length,
            token,
            len(lacking),
            built.last_id,
        )
        return bool(answer == "ok")

    async def _mark_battles(self, votes: Iterable[LogEntry]) -> None:
        """Mark the battles of recent votes as voted, before their votes are back: no second vote may come between."""
        with self._store.guard("time"):
            seconds, _ = await self._store.redis.time()
        since_ms = int(seconds) * 1000 - self._battle_ttl_ms
        recent = [
            (battle_id, vote)
            for vote in votes
            if vote.time_ms >= since_ms
            and vote.is_vote
            and vote.vote.voter is not None
            and (battle_id := BattleId.parse(vote.battle_id)) is not None  # None: of another arena
        ]
        for start in range(0, len(recent), _BATTLES_AT_ONCE):
            piece = recent[start : start + _BATTLES_AT_ONCE]
            arguments = [argument for _, vote in piece for argument in _battle_arguments(vote)]
            keys = [self._keys.battle(battle_id) for battle_id, _ in piece]
            await self._store.run("restore_battles", keys, self._battle_ttl_ms, *arguments)


class _BuiltLog:
    """Owns the log that is being built."""

    def __init__(self, store: Store, keys: Keys, token: str) -> None:
        self._store = store
        self._keys = [keys.built_log(token), keys.logged_battles]
        self.length = 0
        self.last_id: str = LOG_START

    async def append(self, entries: Iterable[LogEntry]) -> None:
        """Append entries in the order of their ids. An id that is taken becomes the next free one: after the clock was
        set back, two battles may have got the same."""
        waiting = list(entries)
        for start in range(0, len(waiting), PIECE):
            arguments: list[Any] = [BUILT_LOG_TTL_MS]
            for entry in waiting[start : start + PIECE]:
                if _order(entry) <= entry_order(self.last_id):
                    milliseconds, number = entry_order(self.last_id)
                    entry = replace(entry, vote_id=f"{milliseconds}-{number + 1}")
                arguments += [entry.vote_id, entry.battle_id, entry.record, entry.time_ms, entry.voter_day or ""]
                self.last_id = entry.vote_id
                self.length += 1
            await self._store.run("build_log", self._keys, *arguments)


def _order(entry: LogEntry) -> tuple[int, int]:
    return entry_order(entry.vote_id)


def _count_up_to(entries: Sequence[LogEntry], last: LogEntry) -> int:
    """How many of the sorted `entries` have an id up to that of `last`."""
    return next((n for n, entry in enumerate(entries) if _order(entry) > _order(last)), len(entries))


def _battle_arguments(entry: LogEntry) -> list[str]:
    vote = entry.vote
    day = entry.voter_day or time.strftime("%Y-%m-%d", time.gmtime(entry.time_ms / 1000))
    sides = (
        json.dumps({"model": side.model, "revision": side.revision, "worker_id": None}) for side in (vote.a, vote.b)
    )
    rated = "1" if vote.is_rated else "0"
    return [entry.vote_id, vote.outcome, rated, vote.voter or "", day, vote.mode, *sides, ",".join(vote.flags)]
