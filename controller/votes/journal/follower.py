"""The journal beside the store: follows the vote log, and brings back votes that the log has lost.

A vote is acknowledged when both hold it. A round reads the log after the last journalled vote, writes what is new, and
compares lengths and last ids; one round serves all votes that wait for it. If the log is not what the journal has seen
(a wipe, a cut file, an older backup), the log becomes the union of both. Runs on the event loop, the disk is used in
threads.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from controller.errors import JournalDamaged, JournalError
from controller.metrics import Metrics
from controller.store.store import unavailable
from controller.votes.journal.comparison import Source
from controller.votes.journal.journal_file import PATTERN, JournalFile, read_entries
from controller.votes.journal.restore import LogRestorer
from controller.votes.vote_log import PIECE, Int64Array, LogEntry, LogState, VoteLog, vote_digest
from service_kit.logs import log_event
from wire.entry_ids import LOG_START, entry_order
from wire.errors import ApiError, ErrorCode

COMPARISON_S = 5.0  #: how often the follower looks whether the store has started again
ROUND_S = 1.0  #: a wiped store is noticed within this time; also the lag behind votes through other controllers
CONFIRM_S = 5.0  #: a vote that is not in the journal by then is answered 503
_TRIES = 3  #: restorations in one round
_AT_ONCE = 100  #: lines that a comparison reads before it rests, about a millisecond of work
_REST = 2.0  #: how long it rests, by the time that it has worked

_logger = logging.getLogger(__name__)


class VoteJournal:
    """Owns the journal of this controller. Rounds run one at a time, and to their end even if their caller leaves."""

    def __init__(self, file: JournalFile, log: VoteLog, restorer: LogRestorer, metrics: Metrics) -> None:
        self._file = file
        self._log = log
        self._restorer = restorer
        self._metrics = metrics
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._token: str | None = None  #: of the last restoration of the log that was read; None before the first read
        self._num_begun = 0  #: rounds
        self._last_verified = 0  #: the last round at whose end log and journal held the same votes
        self._num_replaced = 0  #: how often the log turned out to be another one
        self._seen_damaged: set[str] = set()  #: damaged entries for which the journals were asked
        self._compared: str | None = None  #: the start of the store since which the whole log was compared
        self._damage: JournalDamaged | None = None  #: found by a comparison
        self._is_closing = False
        if file.num_torn_bytes:
            log_event(_logger, "journal_tail_cut", logging.WARNING, file=str(file.path), bytes=file.num_torn_bytes)

    @property
    def seen(self) -> tuple[int, str]:
        """How many votes of the log this journal has seen, and the id of the last. A log without them has lost
        votes."""
        return self._file.num_votes, self._file.last_id

    async def confirm(self, vote_id: str) -> bool:
        """Wait until the journal holds the vote, which the store has recorded.

        False if the log was replaced meanwhile: then ask the store again. Raises ApiError STORE_UNAVAILABLE when the
        journal cannot be written; the same vote may be sent again.
        """
        num_replaced = self._num_replaced
        await self.catch_up()
        is_held = entry_order(vote_id) <= entry_order(self._file.last_id)
        return is_held and num_replaced == self._num_replaced

    async def catch_up(self) -> None:
        """Wait until log and journal hold the same votes. Raises ApiError STORE_UNAVAILABLE when that takes too long or
        the journal cannot be written."""
        try:
            async with asyncio.timeout(CONFIRM_S):
                await self._round_from_now()
        except (TimeoutError, OSError, JournalError) as error:
            raise ApiError(
                ErrorCode.STORE_UNAVAILABLE, "The vote could not be written to the journal. Try again in a moment."
            ) from error

    async def follow_round(self) -> None:
        """One round, as background work: a store that is away is no error. Raises OSError, JournalError."""
        with contextlib.suppress(ApiError):
            await self._round_from_now()

    async def comparison_round(self) -> None:
        """After each start of the store, which reads its files then: compare every record of the log with the journal.

        A changed record may be readable and change no length, so that no round notices it. The first comparison is also
        the check of the lines that the opening of the journal has passed over. Background work; a store that is away is
        no error. Raises OSError, JournalError: a journal that is damaged stays a failure until it is repaired.
        """
        if self._damage is not None:
            raise self._damage
        with contextlib.suppress(ApiError):
            start = await self._log.store_start()
            if start == self._compared:
                return
            logged = await self._log.digests()
            await self._round_from_now()
            try:
                is_known = await asyncio.to_thread(self._knows, logged)
            except JournalDamaged as damage:
                self._damage = damage
                log_event(_logger, "journal_damaged", logging.ERROR, file=str(damage.path), line=damage.line)
                await asyncio.to_thread(self._file.distrust)
                raise
            if not is_known:
                async with self._lock:
                    await self._restore()
            self._compared = start

    def _knows(self, logged: Int64Array) -> bool:
        """Whether each vote of the log is in the journal, with its id and record. Checks every line of the journal.
        Raises JournalDamaged."""
        entries = self._slowly(read_entries(self._file.path))
        journalled = np.fromiter((vote_digest(entry) for entry in entries), np.int64)
        return self._is_closing or bool(np.isin(logged, journalled).all())

    def _slowly(self, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
        """The entries, with rests, so that two million lines do not delay the event loop; none once this is closed."""
        worked_from = time.monotonic()
        for number, entry in enumerate(entries, start=1):
            yield entry
            if number % _AT_ONCE == 0:
                time.sleep(_REST * (time.monotonic() - worked_from))
                worked_from = time.monotonic()
                if self._is_closing:
                    return

    async def close(self) -> None:
        """Wait for the round under way and release the file."""
        self._is_closing = True
        async with self._lock:
            self._file.close()

    async def _round_from_now(self) -> None:
        """Return at the end of a successful round that began after this call."""
        task = asyncio.create_task(self._round_after(self._num_begun))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: its caller may have left

    async def _round_after(self, number: int) -> None:
        async with self._lock:
            if self._last_verified <= number:
                await self._round()

    async def _round(self) -> None:
        self._num_begun += 1
        number = self._num_begun
        for _ in range(_TRIES):
            if await self._read_on():
                self._last_verified = number
                return
            await self._restore()
        raise unavailable()

    async def _read_on(self) -> bool:
        """Write what is new in the log; False if the log is not what the journal has seen before."""
        while True:
            state = await self._log.state(self._file.last_id)
            await self._check_arena(state)
            is_complete = len(state.entries) < PIECE
            if self._log.damaged_ids - self._seen_damaged:
                return False
            if self._token not in (None, state.token) or (is_complete and not self._continues(state)):
                self._num_replaced += 1
                return False
            self._token = state.token
            if state.entries:
                await self._append(state.entries)
            if is_complete:
                return True

    def _continues(self, state: LogState) -> bool:
        """Whether the log has the votes of the journal and `state.entries`, and no others."""
        last_id = state.entries[-1].vote_id if state.entries else self._file.last_id
        return self._file.num_votes + len(state.entries) == state.length and last_id == state.last_id

    async def _append(self, entries: Iterable[LogEntry]) -> None:
        votes = list(entries)
        await asyncio.to_thread(partial(self._file.append, votes, position=votes[-1].vote_id))

    async def _check_arena(self, state: LogState) -> None:
        """Journal and store must hold the same arena. A store that holds none, being new or wiped, gets ours."""
        arena = state.arena or await self._log.name_arena(self._file.arena or secrets.token_hex(16))
        if arena != self._file.arena:
            await asyncio.to_thread(self._file.require_arena, arena)

    async def _restore(self) -> None:
        """Make log and journal the union of both."""
        log_event(_logger, "vote_log_differs_from_journal", logging.WARNING, journal=self._file.num_votes)
        damaged = set(self._log.damaged_ids)
        restored = await self._restorer.restore(self._sources())
        self._seen_damaged |= damaged
        if restored.num_restored:
            self._metrics.votes_restored.inc(restored.num_restored)
            log_event(_logger, "votes_restored", logging.WARNING, votes=restored.num_restored)
        journalled = await asyncio.to_thread(lambda: {entry.vote_id for entry in read_entries(self._file.path)})
        unjournalled = restored.vote_ids - journalled
        last_id: str = LOG_START
        while unjournalled:
            state = await self._log.state(last_id)
            if votes := [entry for entry in state.entries if entry.vote_id in unjournalled]:
                await self._append(votes)
            if len(state.entries) < PIECE:
                break
            last_id = state.entries[-1].vote_id
        # Every readable vote of the log is in the journal now; damaged ones that no journal has count as known.
        self._file.resume(num_votes=restored.state.length, position=restored.state.last_id)
        self._token = restored.state.token

    def _sources(self) -> list[Source]:
        """This journal and all others of its folder: a controller that has died may have had the last votes."""
        others = sorted(path for path in self._file.path.parent.glob(PATTERN) if path != self._file.path)
        return [partial(read_entries, self._file.path), *(partial(self._read_other, path) for path in others)]

    def _read_other(self, path: Path) -> Iterator[LogEntry]:
        try:
            yield from read_entries(path, arena=self._file.arena)
        except (OSError, JournalError) as error:
            log_event(_logger, "journal_not_read", logging.WARNING, file=str(path), reason=str(error))
