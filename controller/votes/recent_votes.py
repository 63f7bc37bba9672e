"""The newest votes with the flags in force, for the administrator: votes come from the log, flags from the table."""

import numpy as np

from controller.votes.boards.leaderboards import Leaderboards
from controller.votes.boards.vote_flags import FLAGS
from controller.votes.boards.vote_table import TableSnapshot
from controller.votes.vote_log import LogEntry, VoteLog
from wire.admin import AdminVote, AdminVotes
from wire.entry_ids import EntryId, entry_order


class RecentVotes:
    """Reads pages of the log, newest first. Raises ApiError STORE_UNAVAILABLE."""

    def __init__(self, log: VoteLog, boards: Leaderboards) -> None:
        self._log = log
        self._boards = boards

    async def page(self, before: EntryId | None, count: int) -> AdminVotes:
        """The last votes before the entry `before`; entries of other kinds among the last `count` are left out."""
        entries = await self._log.newest(before, count)
        table, _ = await self._boards.votes()
        votes = [_vote(entry, table) for entry in entries if entry.is_vote]
        return AdminVotes(votes=tuple(votes), next=entries[-1].vote_id if len(entries) == count else None)


def _vote(entry: LogEntry, table: TableSnapshot) -> AdminVote:
    vote = entry.vote
    flags = set(vote.flags)
    row = _row(table, entry.vote_id)
    if row is not None:
        bits = int(table.columns["judged"][row])
        flags |= {flag for position, flag in enumerate(FLAGS) if bits >> position & 1}
    return AdminVote(
        vote_id=entry.vote_id,
        battle_id=vote.battle_id,
        time=vote.time,
        outcome=vote.outcome,
        model_a=vote.a.model,
        model_b=vote.b.model,
        voter=vote.voter,
        cohort=vote.cohort,
        flags=tuple(sorted(flags)),
    )


def _row(table: TableSnapshot, vote_id: str) -> int | None:
    """The row of a vote, whose entries stand in the order of the log; None if the table has not read it yet."""
    milliseconds, number = entry_order(vote_id)
    ms = table.columns["entry_ms"]
    first, last = (int(np.searchsorted(ms, milliseconds, side=side)) for side in ("left", "right"))
    found = np.flatnonzero(table.columns["entry_number"][first:last] == number)
    return first + int(found[0]) if len(found) else None
