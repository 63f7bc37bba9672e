"""The live boards of one controller: folds the vote log into a vote table, and fits boards when they are asked for.

Folding and fitting run in threads, the rest on the event loop. The table is checkpointed in a folder, if there is one,
so that a controller that starts again reads only the end of the log.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from itertools import groupby
from typing import Any, Final

from controller.metrics import Metrics
from controller.votes.boards.board_cache import BoardCache, CachedBoard, FitLines, Lane
from controller.votes.boards.board_view import BoardJob, BoardQuery, board_job
from controller.votes.boards.board_votes import contestant_names, offered_boards, rated_votes, scope_of
from controller.votes.boards.checkpoints import Checkpoint, Checkpoints
from controller.votes.boards.cohort_view import board_of_group, compare_groups
from controller.votes.boards.fitter import Fitter
from controller.votes.boards.history import DAY_S, FittedDays, daily_counts
from controller.votes.boards.model_cards import ModelCards
from controller.votes.boards.vote_table import TableSnapshot, VoteTable
from controller.votes.vote_log import PIECE, LogEntry, LogState, VoteLog
from ratings.outcomes import PairCounts
from service_kit.logs import log_event
from wire.entry_ids import LOG_START, EntryId, entry_order
from wire.errors import ApiError, ErrorCode
from wire.leaderboard import HistoryView

BACKGROUND_S: Final = 2.0  #: the counts for drawing pairs are read this often when no board is asked for
CHECKPOINT_S: Final = 60.0  #: how often it is considered to write a checkpoint

_logger = logging.getLogger(__name__)


class Leaderboards:
    """Owns the vote table and the fitted boards.

    `models` gives every registered model, `clock` the store's Unix time, `refresh_s` how old a board may be, `anchor`
    the models whose mean rating is 1000, `now` a monotonic clock.
    """

    def __init__(
        self,
        log: VoteLog,
        metrics: Metrics,
        cards: ModelCards,
        *,
        models: Callable[[], Iterable[str]],
        clock: Callable[[], float],
        refresh_s: float,
        fitter: Fitter,
        days: FittedDays,
        anchor: tuple[str, ...] = (),
        checkpoints: Checkpoints | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._cards = cards
        self._models = models
        self._clock = clock
        self._refresh_s = refresh_s
        self._fitter = fitter
        self._days = days
        self._anchor = anchor
        self._checkpoints = checkpoints
        self._now = now
        self._table = VoteTable()
        self._log_state: LogState | None = None  #: the log at the last read
        self._is_loaded = checkpoints is None  #: whether the checkpoint was looked for
        self._read_at = float("-inf")  #: when the log was last read to its end, on the monotonic clock
        self._folding = asyncio.Lock()
        self._lines = FitLines()
        self._cache = BoardCache()
        self._counts: tuple[object, PairCounts] = (None, PairCounts())

    @property
    def counts(self) -> PairCounts:
        """Counts of the overall board at the last background round, for drawing pairs. Do not change them."""
        return self._counts[1]

    async def view(self, query: BoardQuery, *, visitor: str) -> bytes:
        """A board as the JSON of a LeaderboardView, with at least every vote that is older than `refresh_s`. `visitor`
        names who asks. Raises ApiError INVALID_REQUEST for an unknown board or anchor,
        STORE_UNAVAILABLE, INTERNAL_ERROR."""

        async def answer(votes: TableSnapshot, log: LogState) -> bytes:
            state = self._state(votes, log)
            job = await asyncio.to_thread(self._job, query, votes, log, self._names(), self._clock())
            return await self._fitter.fit(job, (state, query.board, query.reads))

        return await self._answered(query, "votes" if query.reads else "counts", visitor, answer)

    async def history(self, board: str, num_days: int, *, visitor: str) -> bytes:
        """The JSON of a HistoryView of the last days. Raises ApiError as `view` does."""

        def fit(votes: TableSnapshot) -> bytes:
            self._require(board, votes)
            days = daily_counts(board, votes, num_days=num_days, now=self._clock())
            view = HistoryView(board=board, days=self._days.fit(days, contestant_names(votes), self._anchor))
            return view.model_dump_json().encode()

        async def answer(votes: TableSnapshot, _: LogState) -> bytes:
            return await asyncio.to_thread(fit, votes)

        return await self._answered(("history", board, num_days), "votes", visitor, answer)

    async def cohorts(self, first: str, second: str, *, visitor: str) -> bytes:
        """The JSON of a CohortView. Raises ApiError INVALID_REQUEST for unknown groups, STORE_UNAVAILABLE."""

        def fit(votes: TableSnapshot) -> bytes:
            for param, group in (("first", first), ("second", second)):
                if board_of_group(group, votes) is None:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, f"{param} must be a cohort or a board that has votes.", param=param
                    )
            view = compare_groups(first, second, votes)
            assert view is not None
            return view.model_dump_json().encode()

        async def answer(votes: TableSnapshot, _: LogState) -> bytes:
            return await asyncio.to_thread(fit, votes)

        return await self._answered(("cohorts", first, second), "counts", visitor, answer)

    async def _answered(
        self,
        question: Hashable,
        lane: Lane,
        visitor: str,
        answer: Callable[[TableSnapshot, LogState], Awaitable[bytes]],
    ) -> bytes:
        """A kept answer, if it is new enough, or another one when it is the visitor's turn."""
        since = self._now() - self._refresh_s
        if (body := await self._cached(question, since)) is not None:
            return body
        async with self._lines.turn(lane, visitor):
            if (body := await self._cached(question, since)) is not None:
                return body  # the same question was answered meanwhile
            votes, log, read_at = await self._snapshot(since)
            state = self._state(votes, log)
            body = await answer(votes, log)
            self._cache.put(question, CachedBoard(body, state, read_at, visitor))
            return body

    async def refresh(self) -> None:
        """Fold the new votes of the log; reads the log at most once in `refresh_s`. Raises ApiError
        STORE_UNAVAILABLE."""
        await self._snapshot(self._now() - self._refresh_s)

    async def votes(self) -> tuple[TableSnapshot, LogState]:
        """The votes now, and the log that they are from, for the judge. Raises ApiError STORE_UNAVAILABLE."""
        snapshot, log, _ = await self._snapshot(self._now() - self._refresh_s)
        return snapshot, log

    async def background_round(self) -> None:
        """Refresh the counts for drawing pairs; a store that is away is no error."""
        await self._fitter.rest_round()
        with contextlib.suppress(ApiError):
            votes, _, _ = await self._snapshot(self._now() - self._refresh_s)
            state = (votes.num_seen, votes.last_vote_id)
            if self._counts[0] != state:
                self._counts = state, await asyncio.to_thread(_overall_counts, votes)

    async def checkpoint_round(self) -> None:
        """Write a checkpoint if enough votes have come since the last one."""
        if self._checkpoints is not None and self._is_loaded:
            async with self._folding:
                checkpoint = self._checkpoint()
            if checkpoint is not None and self._checkpoints.is_due(checkpoint):
                await asyncio.to_thread(self._checkpoints.write, checkpoint)

    async def close(self) -> None:
        """End the fit process, and write what a new start should not have to read again."""
        await self._fitter.close()
        async with self._folding:
            checkpoint = self._checkpoint()
        if self._checkpoints is not None and checkpoint is not None:
            await asyncio.to_thread(self._checkpoints.write, checkpoint)

    async def _cached(self, question: Hashable, since: float) -> bytes | None:
        votes, log, _ = await self._snapshot(since)
        return self._cache.find(question, self._state(votes, log), since=since)

    def _state(self, votes: TableSnapshot, log: LogState) -> tuple[object, ...]:
        """What a board is made from, apart from the question."""
        day = int(self._clock() // DAY_S)  # models retire at midnight
        return self._names(), self._cards.version, day, log.token, votes.num_seen, votes.last_vote_id

    def _names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._models(), *self._cards.cards}))

    def _job(
        self, query: BoardQuery, votes: TableSnapshot, log: LogState, models: tuple[str, ...], now: float
    ) -> BoardJob:
        voted = {model for model, _ in votes.contestants}
        extras = {
            "restored_at": log.restored_at,
            "num_restored": log.num_restored,
            "cards": dict(self._cards.cards),
            "states": self._cards.states(voted.union(self._models())),
        }
        self._require(query.board, votes)
        job = board_job(query, votes, models=models, updated_at=now, anchor=self._anchor, extras=extras)
        assert job is not None
        return job

    def _require(self, board: str, votes: TableSnapshot) -> None:
        if scope_of(board, votes) is None:
            names = ", ".join(offered_boards(votes))
            raise ApiError(ErrorCode.INVALID_REQUEST, f"board must be one of {names}.", param="board")

    async def _snapshot(self, since: float) -> tuple[TableSnapshot, LogState, float]:
        """The votes at `since` or later; the log that they are from; when it was read."""
        async with self._folding:
            if self._read_at < since:
                await self._read_on()
            assert self._log_state is not None
            return self._table.snapshot(), self._log_state, self._read_at

    async def _read_on(self) -> None:
        """Fold the log up to the entry that is its last one when this begins."""
        began, end = self._now(), None
        if not self._is_loaded:
            await self._load()
        while True:
            state = await self._log.state(self._table.last_vote_id or LOG_START)
            if self._table.num_seen and not self._continues(state):
                num_folded = self._table.num_seen
                log_event(_logger, "vote_log_replaced", logging.WARNING, folded=num_folded, length=state.length)
                self._table = VoteTable()
                continue
            self._log_state = state
            end = state.last_id if end is None else end
            if state.entries:
                await _to_its_end(asyncio.to_thread(_fold, self._table, state.entries))
            # Votes that come meanwhile are for the next time: an import could keep this one going for minutes.
            if len(state.entries) < PIECE or entry_order(EntryId(self._table.last_vote_id or LOG_START)) >= entry_order(
                end
            ):
                break
        self._metrics.rating_lag.set(state.length - self._table.num_seen)
        self._read_at = began

    def _continues(self, state: LogState) -> bool:
        """Whether the log is still the one that was folded, with `state.entries` after it."""
        if self._log_state is None or state.token != self._log_state.token:
            return False
        if len(state.entries) == PIECE:
            return True  # there may be more; the last piece tells
        last_id = state.entries[-1].vote_id if state.entries else self._table.last_vote_id
        return self._table.num_seen + len(state.entries) == state.length and last_id == state.last_id

    async def _load(self) -> None:
        """Begin with the newest checkpoint; the first read of the log tells whether it is of this log."""
        assert self._checkpoints is not None
        began = time.monotonic()
        checkpoint = await asyncio.to_thread(self._checkpoints.load)
        if checkpoint is not None:
            state = await self._log.state(checkpoint.votes.last_vote_id or LOG_START, count=1)
            if (state.arena, state.token) == (checkpoint.arena, checkpoint.token):
                self._table = await asyncio.to_thread(VoteTable.restored, checkpoint.votes)
                self._log_state = state
                took_s = time.monotonic() - began
                log_event(_logger, "checkpoint_read", votes=checkpoint.votes.num_votes, seconds=round(took_s, 3))
        self._is_loaded = True

    def _checkpoint(self) -> Checkpoint | None:
        """What a checkpoint would hold now; None before anything was read, and without votes."""
        if self._log_state is None or not self._table.num_seen:
            return None
        return Checkpoint(self._table.snapshot(), self._log_state.arena, self._log_state.token)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work of a thread even if the caller is cancelled: nothing else may change the table meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _fold(table: VoteTable, entries: Iterable[LogEntry]) -> None:
    """Append entries of the log; damaged ones are passed over."""
    for is_damaged, run in groupby(entries, lambda entry: entry.is_damaged):
        if is_damaged:
            for entry in run:
                table.skip(entry.vote_id)
        else:
            table.extend(entry.content for entry in run)


def _overall_counts(votes: TableSnapshot) -> PairCounts:
    return rated_votes("overall", votes).counts()
