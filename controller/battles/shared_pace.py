"""One speed for both sides of an anonymous battle, so that the timing of the stream does not tell the models.

Text waits here until it may be shown. Both sides begin together, at a whole step after the turn began; then each gets
the same number of characters at a time, at the set speed. If one side has no text left before its end, both pause until
both have some again. When one side has ended, the other goes on no faster than the two have been together: a jump would
tell which of them held the other up. No I/O, and no task of its own: `take` is called as often as events are written.
"""

import math
import time
from collections.abc import Callable

from wire.battles import SIDES, Side

STEP_S = 0.5  #: text begins, and goes on after a pause, at a whole number of these after the beginning of the turn
RESERVE_S = 0.4  #: text of this many seconds is gathered before both sides begin or go on
#: A side that has sent nothing for so long is waited for no more: a visitor who sees nothing believes it is broken.
PATIENCE_S = 20.0
SLOWEST = 0.2  #: share of the set speed that the rest of the longer answer has at least


class SharedPace:
    """The text of one turn that is not shown yet. `age_s`: how long ago the turn began."""

    def __init__(self, chars_per_s: float, *, age_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._set_speed = self._speed = chars_per_s
        self._clock = clock
        now = clock()
        self._began = now - age_s
        self._waiting: dict[Side, str] = dict.fromkeys(SIDES, "")
        self._ended: set[Side] = set()
        self._heard: dict[Side, float] = dict.fromkeys(SIDES, now)  #: when a side last had text or thought
        self._goes_on_at: float | None = None  #: end of the pause, once it is known
        self._runs_since: float | None = None  #: None: a pause
        self._given = 0  #: characters of each side since then
        self._first_at: float | None = None  #: when the first text was shown
        self._total = 0  #: characters that the longer of both has shown

    def add(self, side: Side, text: str) -> None:
        """Text that a side has written."""
        self._waiting[side] += text
        self._heard[side] = self._clock()

    def think(self, side: Side) -> None:
        """A side has thought: its text is waited for on, however long that takes."""
        self._heard[side] = self._clock()

    def end(self, side: Side) -> None:
        """No further text of this side comes."""
        self._ended.add(side)

    def restart(self, side: Side) -> None:
        """The side is answered from the start, by another model."""
        self._waiting[side] = ""
        self._ended.discard(side)
        self._heard[side] = self._clock()

    def cut(self, side: Side) -> int:
        """Drop the text that is not shown, and end the side. Returns how many characters were dropped."""
        dropped, self._waiting[side] = len(self._waiting[side]), ""
        self._ended.add(side)
        return dropped

    def has_waiting(self, side: Side) -> bool:
        """Whether text of this side is not shown yet."""
        return bool(self._waiting[side])

    def take(self) -> dict[Side, str]:
        """The text to show now, for both sides the same number of characters as long as neither has ended."""
        now = self._clock()
        if self._runs_since is None and not self._may_go_on(now):
            return {}
        assert self._runs_since is not None
        self._slow_down(now)
        due = int((now - self._runs_since) * self._speed) - self._given
        held = [side for side in self._awaited(now) if len(self._waiting[side]) < due]
        number = min([due, *(len(self._waiting[side]) for side in held)])
        taken: dict[Side, str] = {}
        for side in SIDES:
            text = self._waiting[side]
            if number > 0 and text:
                taken[side], self._waiting[side] = text[:number], text[number:]
        self._given += number
        self._total += max((len(text) for text in taken.values()), default=0)
        if held:
            self._runs_since = None
        return taken

    def _may_go_on(self, now: float) -> bool:
        """Whether a pause is over; it ends on a step, however long both sides have been ready."""
        if self._goes_on_at is None:
            reserve = max(1, int(self._set_speed * RESERVE_S))
            if any(len(self._waiting[side]) < reserve for side in self._awaited(now)):
                return False
            self._goes_on_at = self._began + math.ceil((now - self._began) / STEP_S) * STEP_S
        if now < self._goes_on_at:
            return False
        self._runs_since, self._goes_on_at, self._given = now, None, 0
        self._first_at = self._first_at or now
        return True

    def _awaited(self, now: float) -> list[Side]:
        """Sides without which nothing is shown."""
        return [
            side
            for side in SIDES
            if side not in self._ended and (self._waiting[side] or now - self._heard[side] < PATIENCE_S)
        ]

    def _slow_down(self, now: float) -> None:
        """From the end of the shorter answer on: at most the speed of both together, pauses included."""
        is_one_shown = any(side in self._ended and not self._waiting[side] for side in SIDES)
        if not is_one_shown or self._speed < self._set_speed or not self._total or self._first_at is None:
            return
        so_far = self._total / max(now - self._first_at, 1e-3)
        if so_far < self._set_speed * 0.9:
            self._speed = max(so_far, self._set_speed * SLOWEST)
            self._runs_since, self._given = now, 0
