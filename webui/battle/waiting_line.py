"""The visitors who wait for room, in the order in which they asked. One line for each process of the web UI.

Only the first few ask the controller again; the others wait until they are among them, so that room goes to the one who
has waited longest. What a visitor hears of the line is coarse: an exact count would tell how others come and go, and
with it what the arena is busy with.
"""

from collections.abc import Generator
from contextlib import contextmanager

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
