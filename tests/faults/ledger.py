"""What the visitors of a run were told about their votes, on disk before they go on: the reference of the audit.

One JSON line an event: `sent` before a vote is sent, `acknowledged` after its answer, `refused` after a typed refusal.
The file is outside the arena's data directory, so that no fault of the store reaches it.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class VoteEntry:
    """Everything that the ledger knows about the vote on one battle."""

    outcome: str
    vote_id: str | None = None  #: None: not known
    is_acknowledged: bool = False
    refusal: str | None = None


@dataclass
class Ledger:
    """Appends lines in groups: one fsync for all lines that wait. Used by one event loop."""

    path: Path
    votes: dict[str, VoteEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def sent(self, battle_id: str, outcome: str) -> None:
        """A vote is about to be sent. Returns when the line is on disk."""
        self.votes.setdefault(battle_id, VoteEntry(outcome))
        await self._write({"event": "sent", "battle": battle_id, "outcome": outcome})

    async def acknowledged(self, battle_id: str, vote_id: str | None) -> None:
        """The arena has acknowledged the vote. A page shows no vote id."""
        self.votes[battle_id].vote_id = vote_id
        self.votes[battle_id].is_acknowledged = True
        await self._write({"event": "acknowledged", "battle": battle_id, "vote": vote_id})

    async def refused(self, battle_id: str, code: str) -> None:
        """The arena has refused the vote for good."""
        self.votes[battle_id].refusal = code
        await self._write({"event": "refused", "battle": battle_id, "code": code})

    @property
    def num_acknowledged(self) -> int:
        """Battles whose vote was acknowledged."""
        return sum(1 for vote in self.votes.values() if vote.is_acknowledged)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    async def _write(self, line: Mapping[str, Any]) -> None:
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((json.dumps(line).encode() + b"\n", written))
        if self._writer is None:
            self._writer = asyncio.create_task(self._flush())
        await written

    async def _flush(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            await asyncio.to_thread(self._append, b"".join(line for line, _ in group))
            for _, written in group:
                if not written.done():
                    written.set_result(None)
        self._writer = None

    def _append(self, lines: bytes) -> None:
        os.write(self._file, lines)
        os.fsync(self._file)
