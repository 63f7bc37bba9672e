"""Where a board is fitted: in a thread of the controller, or in its fit process if the fit reads many votes one by one.

The process is started for its first question, rests when there are none, and ends with the controller. One question at
a time: the caller keeps the line. Runs on the event loop.
"""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from controller.votes.boards.board_view import BoardJob, fit_board
from controller.votes.boards.fit_process import FAILED, UNKNOWN_MODEL
from controller.votes.boards.job_file import job_line, write_votes
from ratings.errors import UnknownModelError
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode

THREAD_VOTES: Final = 20_000  #: votes up to which a fit that reads them stays in a thread: some 0.05 s
FIT_TIMEOUT_S: Final = 120.0  #: ten times the slowest fit of two million votes
IDLE_S: Final = 300.0  #: without questions for so long, the process ends and gives back its memory
_TRIES: Final = 2

_logger = logging.getLogger(__name__)


class Fitter:
    """Owns the fit process and its files. `folder`: where the files go; None: the system's folder for such."""

    def __init__(self, folder: Path | None, *, thread_votes: int = THREAD_VOTES) -> None:
        self._folder = folder
        self._thread_votes = thread_votes
        self._process: asyncio.subprocess.Process | None = None
        self._votes: tuple[Hashable, Path] | None = None  #: the file of the last question
        self._asked_at = 0.0

    async def fit(self, job: BoardJob, votes_of: Hashable) -> bytes:
        """The answer as the JSON of a LeaderboardView. `votes_of` is the same for questions about the same votes.
        Raises ApiError INVALID_REQUEST for an anchor that is not on the board, INTERNAL_ERROR."""
        if not job.query.reads or job.votes.num_votes <= self._thread_votes:
            try:
                return await asyncio.to_thread(lambda: fit_board(job).model_dump_json().encode())
            except UnknownModelError as error:
                raise _unknown(error.model) from None
        for attempt in range(_TRIES):
            try:
                async with asyncio.timeout(FIT_TIMEOUT_S):
                    kind, text = await self._ask(job, votes_of)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                log_event(_logger, "fit_process_lost", logging.WARNING, attempt=attempt, error=repr(error))
                await self.close()
                continue
            except asyncio.CancelledError:
                await self.close()  # the answer of a question that is not waited for must not be the next one's
                raise
            if kind == UNKNOWN_MODEL:
                raise _unknown(text.decode())
            if kind == FAILED:
                log_event(_logger, "fit_failed", logging.ERROR, error=text.decode())
                break
            return text
        raise ApiError(ErrorCode.INTERNAL_ERROR, "The board could not be fitted.")

    async def rest_round(self) -> None:
        """End the process if it has had nothing to do for long."""
        if self._process is not None and time.monotonic() - self._asked_at > IDLE_S:
            await self.close()

    async def close(self) -> None:
        """End the process and remove its file; the next question starts another one."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._forget_votes()

    async def _ask(self, job: BoardJob, votes_of: Hashable) -> tuple[bytes, bytes]:
        self._asked_at = float("inf")  # under way
        try:
            path = await self._written(job, votes_of)
            if self._process is None:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "controller.votes.boards.fit_process"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
            questions, answers = self._process.stdin, self._process.stdout
            assert questions is not None
            assert answers is not None
            questions.write(await asyncio.to_thread(job_line, job, path))
            await questions.drain()
            head = await answers.readexactly(5)
            return head[:1], await answers.readexactly(int.from_bytes(head[1:], "big"))
        finally:
            self._asked_at = time.monotonic()

    async def _written(self, job: BoardJob, votes_of: Hashable) -> Path:
        if self._votes is not None and self._votes[0] == votes_of:
            return self._votes[1]
        self._forget_votes()
        descriptor, name = await asyncio.to_thread(self._new_file)
        os.close(descriptor)
        path = Path(name)
        self._votes = None, path  # removed at the next question, should writing fail
        await asyncio.to_thread(write_votes, path, job)
        self._votes = votes_of, path
        return path

    def _new_file(self) -> tuple[int, str]:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        return tempfile.mkstemp(prefix="fit-", suffix=".npz", dir=self._folder)

    def _forget_votes(self) -> None:
        if self._votes is not None:
            self._votes[1].unlink(missing_ok=True)
            self._votes = None


def _unknown(model: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"anchor names {model!r}, which is not on this board.", param="anchor")
