"""When the events of a turn that has begun may be read: once the workers have accepted it, or after a while."""

import asyncio
from collections.abc import Callable, Collection

from wire.battles import Side
from wire.errors import ApiError


class TurnAdmission:
    """Owner of the decision whether a turn is admitted or refused; it is made once."""

    def __init__(self, sides: Collection[Side], on_open: Callable[[], None]) -> None:
        """on_open: called when the turn is admitted."""
        self._sides = sides
        self._on_open = on_open
        self._accepted: set[Side] = set()
        self._decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self) -> None:
        """Return once events may be read. Raises the ApiError of `refuse`."""
        await asyncio.shield(self._decided)

    def begin(self, wait_s: float) -> None:
        """Admit the turn after wait_s, whatever the workers say."""
        self._timer = asyncio.get_running_loop().call_later(wait_s, self.open)

    def note_accepted(self, side: Side) -> None:
        """A worker has accepted the request of a side."""
        self._accepted.add(side)
        if len(self._accepted) == len(self._sides):
            self.open()

    def open(self) -> None:
        """Admit the turn: its events may be read from now on. Idempotent."""
        self._stop_timer()
        if not self._decided.done():
            self._decided.set_result(None)
            self._on_open()

    def close(self) -> None:
        """Admit no more by time: the turn is about to be refused."""
        self._stop_timer()

    def refuse(self, error: ApiError) -> None:
        """`wait` raises the error, unless events may be read already."""
        if not self._decided.done():
            self._decided.set_exception(error)
            self._decided.exception()  # marks it as retrieved: the client may have disconnected

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
