"""Fitted boards, as the JSON that clients get, and the order in which visitors get theirs. Runs on the event loop.

A visitor has at most one fit under way or in line, so that many questions of one delay another by one fit at most; and
the questions of one visitor push no board of another out of the cache.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass
from typing import Final, Literal
from weakref import WeakValueDictionary

MAX_CACHED: Final = 64  #: answers, 0.3 MB each with 60 models

Lane = Literal[
    "counts", "votes"
]  #: quick fits from pair counts, and fits that read every vote: neither waits for the other


@dataclass(frozen=True, slots=True)
class CachedBoard:
    """An answer. `state`: what it was made from; `read_at`: when the log was read for it, on the monotonic clock."""

    body: bytes
    state: Hashable
    read_at: float
    visitor: str


class BoardCache:
    """Owns the answers, the newest for each question."""

    def __init__(self, max_boards: int = MAX_CACHED) -> None:
        self._boards: dict[Hashable, CachedBoard] = {}  # oldest first
        self._max_boards = max_boards

    def find(self, question: Hashable, state: Hashable, *, since: float) -> bytes | None:
        """The answer, if it was made from `state`, or the log was read for it at `since` or later."""
        board = self._boards.get(question)
        if board is None or (board.state != state and board.read_at < since):
            return None
        return board.body

    def put(self, question: Hashable, board: CachedBoard) -> None:
        """Keep an answer. Where there are too many, the oldest goes of the visitor who has most."""
        self._boards.pop(question, None)
        self._boards[question] = board
        if len(self._boards) > self._max_boards:
            visitor = Counter(kept.visitor for kept in self._boards.values()).most_common(1)[0][0]
            oldest = next(key for key, kept in self._boards.items() if kept.visitor == visitor)
            del self._boards[oldest]


class FitLines:
    """The lines in which visitors wait for their fits, one for each lane. First come, first served."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, asyncio.Lock] = {"counts": asyncio.Lock(), "votes": asyncio.Lock()}
        self._visitors: WeakValueDictionary[tuple[Lane, str], asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def turn(self, lane: Lane, visitor: str) -> AsyncGenerator[None, None]:
        """Wait until this visitor's fit may run; the lane is taken until the block ends."""
        own = self._visitors.setdefault((lane, visitor), asyncio.Lock())
        async with own, self._lanes[lane]:
            yield
