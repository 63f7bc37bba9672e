"""The visitors who wait for room, in the order in which they asked. One line for each process of the web UI.

Only the first few ask the controller again; the others wait until they are among them, so that room goes to the one who
has waited longest. What a visitor hears of the line is coarse: an exact count would tell how others come and go, and
with it what the arena is busy with.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final

from wire.errors import ErrorCode

#: Overload that passes by itself: a question waits MAX_WAIT_S for room before it is given back.
WAITING_CODES: Final = frozenset({ErrorCode.QUEUE_FULL, ErrorCode.OVERLOADED, ErrorCode.NO_WORKER})
MAX_WAIT_S: Final = 20.0
_POLL_S: Final = 0.5  #: a place in the line is looked at this often
ASKING = 4  #: visitors at the head of the line who ask the controller; more than one, because their models may differ
_STEPS = (0, 5, 10, 20, 50, 100)


class WaitingLine:
    """Who waits. Runs on the event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Place, None] = {}

    @contextmanager
    def place(self) -> Generator["Place", None, None]:
        """A place at the end, which is left with the block."""
        place = Place(self._waiting)
        self._waiting[place] = None
        try:
            yield place
        finally:
            del self._waiting[place]


class Place:
    """The place of one visitor."""

    def __init__(self, waiting: "dict[Place, None]") -> None:
        self._waiting = waiting

    @property
    def num_before(self) -> int:
        """Visitors who have waited longer."""
        return list(self._waiting).index(self)

    @property
    def may_ask(self) -> bool:
        """Whether it is this visitor's turn to ask the controller."""
        return self.num_before < ASKING

    @property
    def shown(self) -> int:
        """`num_before`, rounded up to a step: 0, 5, 10, 20, 50 or 100."""
        return next((step for step in _STEPS if self.num_before <= step), _STEPS[-1])

    async def wait(self, seconds: float, give_up_at: float) -> AsyncGenerator[int, None]:
        """Wait `seconds`, and on until it is this visitor's turn to ask, at most until `give_up_at` (monotonic clock);
        yields what the visitor hears meanwhile."""
        yield self.shown
        await asyncio.sleep(seconds)
        while not self.may_ask and time.monotonic() < give_up_at:
            yield self.shown
            await asyncio.sleep(_POLL_S)
