"""Writes the event stream of one running turn to Redis, for the controller that owns the turn.

Deltas are gathered: the first one is written at once, then one flush about every 45 ms writes all text since the last,
so that a battle costs the store some twenty small writes a second and not one per token. While the store is away events
are kept and sent again under the same numbers; the script drops those it has already. Events that the store has lost
are written again. Knows no worker and no browser.

With a SharedPace an event `delta` has the text that may be shown now; the tokens and the text that have come are in its
private part, from which a controller that takes the turn over learns all of them. Thoughts of hidden models are only
there. While nothing is shown, an event `held` of private parts is written every HELD_S, whatever has come: as event ids
have gaps there, clients learn how much time has passed, and not which side thinks.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from controller.battles.battle_store import BegunTurn, Event, TurnEnd, TurnStore
from controller.battles.shared_pace import SharedPace
from controller.battles.turn_progress import HELD, SideProgress
from controller.errors import EventsLost
from service_kit.logs import log_event, short
from wire.battles import SIDES, DeltaEvent, RestartedEvent, Side
from wire.errors import ApiError

HELD_S = 1.0  #: without an event for clients what has come is written this often
IDLE_S = 0.5  #: without events a write this often renews the ownership and learns whether a stop was asked for
RETRY_S = 0.2  #: pause after a write that the store did not answer

_logger = logging.getLogger(__name__)


class TurnWriter:
    """Owns the events that are not yet in Redis. `stop_asked` is set when a stop was asked for at any controller.
    `patience_s`: seconds without the store after which a write is given up. `pace`: None to show text as it comes.
    `shows_thoughts`: whether clients get the thoughts of the models. `sides`: those that answer."""

    def __init__(
        self,
        store: TurnStore,
        begun: BegunTurn,
        *,
        flush_s: float,
        patience_s: float,
        pace: SharedPace | None = None,
        shows_thoughts: bool = True,
        sides: Sequence[Side] = SIDES,
    ) -> None:
        self._sides = sides
        self._store = store
        self._begun = begun
        self._flush_s = flush_s
        self._patience_s = patience_s
        self._written: list[Event] = []  #: by this owner, in case the store loses them; some 10 kB
        self._made: dict[str, str] = {}  #: changes that are written, for the same case
        self._first_token_ms: dict[Side, float] = {}  #: of sides whose first delta is not written yet
        self._tokens: dict[Side, list[int]] = {side: [] for side in self._sides}
        self._unsent: list[Event] = []
        self._changes: dict[str, str] = {}
        self._texts: dict[Side, list[str]] = {side: [] for side in self._sides}
        self._thoughts: dict[Side, list[str]] = {side: [] for side in self._sides}
        self._thinkers: set[Side] = set()
        self._shows_thoughts = shows_thoughts
        self._pace = pace
        #: Name, JSON and private part of the last events of sides that are not shown to their end.
        self._ends: dict[Side, tuple[str, str, dict[str, Any]]] = {}
        self._all_shown = {side: asyncio.Event() for side in self._sides}
        self._first_shown_s: dict[Side, float] = {}
        self._last_event = time.monotonic()
        self._last_write = 0.0
        self._seqs: dict[Side, int] = dict.fromkeys(sides, 0)
        self._ending: TurnEnd | None = None  #: how the turn ends, once that is decided
        self._wake = asyncio.Event()
        self._opened = asyncio.Event()
        self.stop_asked = asyncio.Event()

    def open(self) -> None:
        """Allow writes. Until then the turn may still be refused as a whole."""
        self._opened.set()

    @property
    def is_open(self) -> bool:
        """Whether events may be written."""
        return self._opened.is_set()

    def resume(self, side: Side, progress: SideProgress) -> None:
        """Go on behind what a former owner of the turn has written of `side`."""
        self._seqs[side] = progress.num_deltas
        if self._pace is not None:
            self._pace.add(side, progress.waiting)
        if progress.has_ended:
            self._all_shown[side].set()

    def first_token(self, side: Side, ms: float) -> None:
        """Note when the first token of a side came, in milliseconds from the beginning of the turn."""
        self._first_token_ms[side] = ms

    def delta(self, side: Side, text: str, token_ids: Sequence[int], thoughts: str = "") -> None:
        """Append thoughts and text to one side, and the tokens that they stand for, which no client gets. Called for
        every token; the events are made when they are written. Tokens without text are written with the next text."""
        self._tokens[side].extend(token_ids)
        if thoughts:
            self._thoughts[side].append(thoughts)
            self._thinkers.add(side)
            if self._pace is not None:
                self._pace.think(side)
            if self._shows_thoughts:
                self._wake.set()
        if text:
            self._texts[side].append(text)
            if self._pace is not None:
                self._pace.add(side, text)
            self._wake.set()

    def event(
        self,
        name: str,
        event: BaseModel,
        changes: Mapping[str, str] | None = None,
        private: Mapping[str, Any] | None = None,
    ) -> None:
        """Queue an event behind all text so far; `changes` to the battle are written in the same step. `private` is
        what a controller that takes the turn over must know, and no client."""
        self._gather()
        self._unsent.append((name, event.model_dump_json(), json.dumps(private) if private else ""))
        self._changes.update(changes or {})
        self._wake.set()

    def end_side(self, side: Side, name: str, event: BaseModel, private: Mapping[str, Any] | None = None) -> None:
        """Queue the last event of a side. It is written when all text of the side is."""
        self._ends[side] = (name, event.model_dump_json(), dict(private or {}))
        if self._pace is not None:
            self._pace.end(side)
        self._gather()
        self._wake.set()

    async def shown(self, side: Side) -> None:
        """Return when the last event of a side is queued behind all its text."""
        await self._all_shown[side].wait()

    def cut(self, side: Side) -> int | None:
        """End a side where its visitor has read to; its last event is to be queued again. Returns how many characters
        were dropped, None if the side has been shown to its end."""
        if self._all_shown[side].is_set():
            return None
        self._ends.pop(side, None)
        return 0 if self._pace is None else self._pace.cut(side)

    def shown_ms(self, side: Side) -> float | None:
        """For how long the text of a side has been growing before its visitor's eyes; None if this owner does not know
        or everything is shown as it comes."""
        first_s = self._first_shown_s.get(side)
        is_as_it_comes = self._pace is None and side not in self._thinkers
        return None if first_s is None or is_as_it_comes else (time.monotonic() - first_s) * 1000

    def restarted(self, side: Side, changes: Mapping[str, str]) -> None:
        """Queue the event `restarted`, after which the text of `side` begins again at offset 0."""
        self._seqs[side] = 0
        self._tokens[side].clear()
        self._texts[side].clear()
        self._thoughts[side].clear()
        self._thinkers.discard(side)
        if self._pace is not None:
            self._pace.restart(side)
        self.event("restarted", RestartedEvent(side=side), changes)

    async def run(self) -> None:
        """Flush until cancelled, from `open` on. Raises OwnershipLost, or ApiError when the store stayed away longer
        than `patience_s`."""
        await self._opened.wait()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_S):
                    await self._wake.wait()
            self._wake.clear()
            if self._has_something_to_write():
                await self._send("append")
            await asyncio.sleep(self._flush_s)
            if self._pace is not None and any(self._pace.has_waiting(side) for side in self._sides):
                self._wake.set()

    async def end(self, how: TurnEnd, changes: Mapping[str, str]) -> None:
        """Write the remaining events and end the turn. `run` must have been cancelled. Raises as `run` does.

        After a call that was cancelled the next one repeats its end, whatever `how` it asks for.
        """
        self._ending = self._ending or how
        self._changes.update(changes)
        if self._ending == "refuse" and not self.is_open:
            self._gather()
            self._unsent.clear()
        await self._send(self._ending)

    def _has_something_to_write(self) -> bool:
        """Whether events are due, or the ownership: text that waits for its time makes the writer look often."""
        self._gather()
        return bool(self._unsent) or self._pace is None or time.monotonic() - self._last_write > IDLE_S

    def _gather(self) -> None:
        """Make events of the text that may be shown now, and of the ends of sides that are shown to their end."""
        due = (
            self._pace.take() if self._pace is not None else {side: "".join(self._texts[side]) for side in self._sides}
        )
        for side in self._sides:
            text = due.get(side, "")
            thoughts = "".join(self._thoughts[side]) if self._shows_thoughts else ""
            if text:
                self._first_shown_s.setdefault(side, time.monotonic())
            if text or thoughts:
                delta = DeltaEvent(side=side, seq=self._seqs[side], text=text, thoughts=thoughts)
                part = json.dumps(self._private_part(side), separators=(",", ":"))
                self._add_event(("delta", delta.model_dump_json(exclude_defaults=True), part))
                self._seqs[side] += 1
        self._hold()
        for side in list(self._ends):
            if self._pace is None or not self._pace.has_waiting(side):
                name, data, private = self._ends.pop(side)
                if self._thoughts[side]:  # no text came after them
                    private["held"] = self._private_part(side)
                self._add_event((name, data, json.dumps(private) if private else ""))
                self._all_shown[side].set()

    def _hold(self) -> None:
        """Make an event `held` if it is time for one."""
        hides = self._pace is not None or (not self._shows_thoughts and any(self._thoughts.values()))
        is_over = all(self._all_shown[side].is_set() for side in self._sides)
        if hides and self.is_open and not is_over and time.monotonic() - self._last_event >= HELD_S:
            parts = {side: self._private_part(side) for side in self._sides}
            self._add_event((HELD, "{}", json.dumps(parts, separators=(",", ":"))))

    def _add_event(self, event: Event) -> None:
        self._unsent.append(event)
        self._last_event = time.monotonic()

    def _private_part(self, side: Side) -> dict[str, Any]:
        """What has come of a side since the last event that said so."""
        private: dict[str, Any] = {"tokens": self._tokens[side].copy()}
        if self._pace is not None:
            private["text"] = "".join(self._texts[side])  # shown or not
        if not self._shows_thoughts:
            private["thoughts"] = "".join(self._thoughts[side])
        self._tokens[side].clear()
        self._texts[side].clear()
        self._thoughts[side].clear()
        if side in self._first_token_ms:
            private["first_token_ms"] = self._first_token_ms.pop(side)
        return private

    async def _send(self, how: TurnEnd) -> None:
        self._gather()
        self._last_write = time.monotonic()
        events, changes = tuple(self._unsent), dict(self._changes)
        if await self._persist(how, events, changes):
            self.stop_asked.set()
        del self._unsent[: len(events)]
        self._written += events
        self._made |= changes
        for name, value in changes.items():
            if self._changes.get(name) == value:
                del self._changes[name]

    async def _persist(self, how: TurnEnd, events: tuple[Event, ...], changes: dict[str, str]) -> bool:
        # A turn that is released is claimed by another controller even if that could not be written.
        give_up_at = time.monotonic() + (0 if how == "release" else self._patience_s)
        num_there = len(self._written)
        while True:
            first_event = self._begun.first_event + num_there
            try:
                missing = (*self._written[num_there:], *events)
                return await self._store.advance(self._begun, how, first_event, missing, changes)
            except EventsLost as loss:
                log_event(_logger, "events_lost", logging.WARNING, battle=short(self._begun.battle_id))
                num_there = loss.first_event - self._begun.first_event
                changes = {**self._made, **changes}
            except ApiError:
                if time.monotonic() > give_up_at:
                    raise
                log_event(
                    _logger, "turn_waits_for_store", logging.WARNING, battle=short(self._begun.battle_id), how=how
                )
                await asyncio.sleep(RETRY_S)
