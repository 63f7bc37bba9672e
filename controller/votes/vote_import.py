"""Import of votes as they arrive: pieces of a body become lines, lines become votes, votes go to the log in batches.

Holds one unfinished line and one batch, however long the import is: the next piece is read when the batch before it is
in the log. Votes are decoded in a thread, in portions of some milliseconds, so that streams and `/health` go on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from controller.votes.categories import categories_of
from controller.votes.languages import language_of
from controller.votes.vote_log import PIECE, VoteLog
from wire.errors import ApiError, ErrorCode
from wire.log_records import LogRecord, parse_strictly
from wire.votes import ImportReply, VoteRecord

MAX_LINE_BYTES = 16_000_000  #: decoding one line holds the interpreter for some 100 ms at worst
BATCH_BYTES = 256 * 1024
BATCH_VOTES = PIECE // 2  #: less than readers take at once, so that journal and boards keep up with an import
FIRST_PAUSE_S = 0.05  #: after the first failure of the store; doubles with every further one
LONGEST_PAUSE_S = 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class _Line:
    """A line that is not blank, with its number in the body."""

    number: int
    text: bytes


class VoteImport:
    """One import. `patience_s`: how long it waits for a store that does not answer before it gives up. `confirm` waits
    until the journal has what the log has, or raises STORE_UNAVAILABLE."""

    def __init__(
        self, log: VoteLog, *, patience_s: float, confirm: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._log = log
        self._patience_s = patience_s
        self._confirm = confirm
        self.imported = 0
        self.skipped = 0  #: because the log had their battles or keys

    async def run(self, pieces: AsyncIterator[bytes]) -> ImportReply:
        """Append the records of a body to the log.

        Raises ApiError INVALID_REQUEST for a line that is none; the batches before it are in the log then, which the
        message says. Raises STORE_UNAVAILABLE, and what `pieces` raises; what is in the log by then is skipped when the
        same body is sent again.
        """
        batch: list[_Line] = []
        size = 0
        async for line in _lines(pieces):
            if batch and (size + len(line.text) > BATCH_BYTES or len(batch) >= BATCH_VOTES):
                await self._append(batch)
                batch, size = [], 0
            batch.append(line)
            size += len(line.text)
        if batch:
            await self._append(batch)
        if self._confirm is not None:
            await self._confirm()
        return ImportReply(imported=self.imported, skipped=self.skipped)

    async def _append(self, batch: list[_Line]) -> None:
        try:
            entries = await asyncio.to_thread(_parse, batch)
        except ApiError as error:
            before = f" Of the lines before it {self.imported} were imported, {self.skipped} were there already."
            raise ApiError(error.code, error.message + (before if self.imported + self.skipped else "")) from None
        imported = await self._append_patiently(entries)
        self.imported += imported
        self.skipped += len(entries) - imported

    async def _append_patiently(self, entries: list[LogRecord]) -> int:
        """A batch that is sent again adds no vote twice. Votes of an attempt whose answer was lost count as skipped."""
        return await patiently(lambda: self._log.append_foreign(entries), self._patience_s)


async def patiently(attempt: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """The result of `attempt`, made again after growing pauses while it raises STORE_UNAVAILABLE, for `patience_s`."""
    give_up_at = time.monotonic() + patience_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except ApiError as error:
            if error.code is not ErrorCode.STORE_UNAVAILABLE or time.monotonic() + pause_s > give_up_at:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[_Line]:
    """The lines of a body. Raises ApiError INVALID_REQUEST for one that is too long."""
    number = 1
    unfinished: list[bytes] = []
    size = 0
    async for piece in pieces:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            size += end - start
            _check_size(number, size)
            text = b"".join((*unfinished, piece[start:end]))
            if text.strip():
                yield _Line(number, text)
            unfinished, size = [], 0
            number, start = number + 1, end + 1
        if rest := piece[start:]:
            unfinished.append(rest)
            size += len(rest)
            _check_size(number, size)
    text = b"".join(unfinished)
    if text.strip():
        yield _Line(number, text)


def _check_size(number: int, size: int) -> None:
    if size > MAX_LINE_BYTES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Line {number} is longer than {MAX_LINE_BYTES} bytes.")


def _classified(vote: VoteRecord) -> VoteRecord:
    """A vote that brings its texts and says nothing about them gets language and categories as one that is cast."""
    texts = vote.conversations
    if not texts or vote.categories:
        return vote
    prompts = [message.content for message in texts.get("a", ()) if message.role == "user"]
    last_answers = [
        next((message.content for message in reversed(messages) if message.role == "assistant"), "")
        for messages in texts.values()
    ]
    language = vote.language or (language_of(prompts[0]) if prompts else None)
    return vote.model_copy(update={"language": language, "categories": categories_of(prompts, last_answers)})


def _parse(batch: list[_Line]) -> list[LogRecord]:
    return list(_entries(batch))


def _entries(batch: list[_Line]) -> Iterator[LogRecord]:
    for line in batch:
        try:
            entry = parse_strictly(line.text)
            yield _classified(entry) if isinstance(entry, VoteRecord) else entry
        except ApiError as error:
            message = f"Line {line.number} is not a vote: {error.message}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message) from None
