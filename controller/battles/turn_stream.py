"""A battle's events as a browser reads them: server-sent events out of the battle's stream in Redis.

Every reader is independent of the turn: it may come late, leave, and come back with the id of the last event it saw,
at any controller. Each stream ends with `turn_finished`, or with one `error` that says to come back.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from pydantic import BaseModel

from controller.battles.battle_record import Battle
from controller.battles.battle_store import BattleStore
from wire.battles import SIDES, RestartedEvent, TurnFinishedEvent
from wire.entry_ids import MAX_EVENT_ID_CHARS, entry_order, is_entry_id
from wire.errors import ApiError, ErrorCode
from wire.sse import KEEP_ALIVE, SseEvent, encode

KEEP_ALIVE_S = 10.0
RETRY_S = 0.25


def parse_event_id(text: str) -> str:
    """A Last-Event-ID as this controller gave it out; raises ApiError INVALID_REQUEST."""
    if not is_entry_id(text, MAX_EVENT_ID_CHARS):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Last-Event-ID must be the id of an event.", param="Last-Event-ID")
    return text


class TurnStream:
    def __init__(self, store: BattleStore, *, patience_s: float) -> None:
        self._store = store
        self._patience_s = patience_s

    async def follow(self, battle_id: str, after: str | None) -> AsyncGenerator[bytes, None]:
        """Events after the id `after` (None: of the whole current turn) up to the next turn_finished."""
        reader = _Reader(self._store, battle_id, after)
        last_sent = last_contact = time.monotonic()
        while not reader.is_over:
            try:
                await reader.read()
                last_contact = time.monotonic()
            except ApiError as error:
                is_lost = error.code is not ErrorCode.STORE_UNAVAILABLE
                if is_lost or time.monotonic() - last_contact > self._patience_s:
                    yield encode(SseEvent(error.body().model_dump_json(), "error"))
                    return
                await asyncio.sleep(RETRY_S)
            out = reader.take()
            if not out and time.monotonic() - last_sent > KEEP_ALIVE_S:
                out = KEEP_ALIVE
            if out:
                yield out
                last_sent = time.monotonic()


class _Reader:
    """One way along a battle's events. A step that failed may be repeated; nothing is lost or doubled by that."""

    def __init__(self, store: BattleStore, battle_id: str, after: str | None) -> None:
        self._store = store
        self._battle_id = battle_id
        self._after = after
        self._battle: Battle | None = None
        self._out: list[bytes] = []
        self.is_over = False

    def take(self) -> bytes:
        """What has been read and not yet taken, encoded."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    async def read(self) -> None:
        """Wait a little for events. When none come, look after the battle: its owner may have died."""
        battle = self._battle or await self._begin()
        after = self._after or battle.run_from
        entries = await self._store.read_events(self._battle_id, after, block=battle.state == "streaming")
        for entry_id, fields in entries:
            self._out.append(encode(SseEvent(fields["data"], fields["event"], entry_id)))
            self._after = entry_id
            if fields["event"] == "turn_finished":
                self.is_over = True
                return
        if not entries:
            self._battle = await self._store.read(self._battle_id)
            if battle.state != "streaming" and self._battle.state != "streaming":
                self._end_with(self._battle)

    async def _begin(self) -> Battle:
        battle = await self._store.read(self._battle_id)
        if self._after is not None and _is_void(self._after, battle):
            self._out.extend(_event("restarted", RestartedEvent(side=side)) for side in SIDES)
            self._after = battle.run_from
        self._battle = battle
        return battle

    def _end_with(self, battle: Battle) -> None:
        """There was nothing to come: say so, because a stream never ends without an end."""
        self._out.append(_event("turn_finished", TurnFinishedEvent(turn=len(battle.turns), state=battle.state)))
        self.is_over = True


def _event(name: str, event: BaseModel) -> bytes:
    return encode(SseEvent(event.model_dump_json(), name))


def _is_void(event_id: str, battle: Battle) -> bool:
    """Whether the turn of this event is being, or has been, answered again since."""
    order = entry_order(event_id)
    return order < entry_order(battle.run_from) and order[0] == len(battle.turns)
