"""A battle's events as a browser reads them: server-sent events from the battle's stream in Redis.

A reader is independent of the turn: it may connect late, disconnect, and resume with the id of the last event it saw,
at any controller. Each stream ends with `turn_finished`, or with one `error` that tells the client to reconnect: also
when the store stays away, the battle is gone, this controller shuts down, or our own code fails.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import BaseModel

from controller.battles.battle_record import Battle
from controller.battles.battle_store import TurnStore
from controller.battles.neutral_errors import neutral
from controller.battles.turn_progress import HELD
from service_kit.logs import log_event, short
from wire.battles import FailedEvent, RestartedEvent, TurnFinishedEvent
from wire.entry_ids import EntryId, entry_order
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId
from wire.sse import SseEvent, encode

_REFUSED = neutral(ApiError(ErrorCode.QUEUE_FULL, ""))
_logger = logging.getLogger(__name__)

RETRY_S = 0.25  #: pause after a read that the store did not answer


def parse_event_id(text: str) -> EntryId:
    """`text` if it has the form of an event id, `turn-number`. Raises ApiError INVALID_REQUEST."""
    try:
        return EntryId(text)
    except ValueError:
        problem = "Last-Event-ID must be the id of an event."
        raise ApiError(ErrorCode.INVALID_REQUEST, problem, param="Last-Event-ID") from None


class TurnStream:
    """Streams events to readers. `patience_s`: seconds without the store after which a stream is given up."""

    def __init__(self, store: TurnStore, *, patience_s: float) -> None:
        self._store = store
        self._patience_s = patience_s
        self._is_closed = False

    def close(self) -> None:
        """End all streams within READ_BLOCK_S, with an error that tells the clients to resume elsewhere."""
        self._is_closed = True

    async def follow(self, battle_id: BattleId, after: EntryId | None) -> AsyncGenerator[bytes, None]:
        """Encoded events after the id `after` (None: from the beginning of the current turn) up to the next
        turn_finished. Raises nothing: errors become the last event."""
        reader = _Reader(self._store, battle_id, after)
        try:
            async with aclosing(self._parts(reader)) as parts:
                async for part in parts:
                    yield part
        except ApiError as error:
            yield _error(error)
        except Exception as error:  # a defect; the client resumes where it is
            log_event(_logger, "stream_failed", logging.ERROR, exc_info=error, battle=short(battle_id))
            yield _error(ApiError(ErrorCode.INTERNAL_ERROR, "The stream failed. Resume it after its last event."))

    async def _parts(self, reader: "_Reader") -> AsyncGenerator[bytes, None]:
        last_contact, waits = time.monotonic(), True
        while not reader.is_over:
            if self._is_closed:
                raise ApiError(ErrorCode.SHUTTING_DOWN, "This controller shuts down. Resume after the last event.")
            try:
                await reader.read(waits=waits)
                last_contact, waits = time.monotonic(), True
            except ApiError as error:
                is_lost = error.code is not ErrorCode.STORE_UNAVAILABLE
                if is_lost or time.monotonic() - last_contact > self._patience_s:
                    raise
                waits = False  # a store that dies every second answers at once, or not at all
                await asyncio.sleep(RETRY_S)
            if out := reader.take():
                yield out


class _Reader:
    """A position in a battle's events. A failed read may be repeated without losing or repeating an event."""

    def __init__(self, store: TurnStore, battle_id: BattleId, after: EntryId | None) -> None:
        self._store = store
        self._battle_id = battle_id
        self._after = after
        self._battle: Battle | None = None
        self._was_running = False  #: this reader has seen the turn run
        self._out: list[bytes] = []
        self.is_over = False

    def take(self) -> bytes:
        """The encoded events that were read since the last call."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    async def read(self, *, waits: bool) -> None:
        """Read the next events; with `waits`, for up to a second until there are some. When there are none, read the
        battle: it may have ended without them."""
        battle = self._battle or await self._begin()
        after = self._after or battle.run_from
        block = waits and battle.state == "streaming"
        entries = await self._store.read_events(self._battle_id, after, block=block)
        for entry_id, fields in entries:
            self._after = EntryId(entry_id)
            if fields["event"] == HELD:  # for controllers only
                continue
            self._out.append(encode(SseEvent(fields["data"], fields["event"], entry_id)))
            if fields["event"] == "turn_finished":
                self.is_over = True
                return
        if not entries:
            self._battle = await self._store.read(self._battle_id)
            if battle.state != "streaming" and self._battle.state != "streaming":
                self._end_with(self._battle)
            self._was_running |= self._battle.state == "streaming"

    async def _begin(self) -> Battle:
        battle = await self._store.read(self._battle_id)
        if self._after is not None and _is_void(self._after, battle):
            self._out.extend(_event("restarted", RestartedEvent(side=side)) for side in battle.sides)
            self._after = battle.run_from
        self._battle = battle
        self._was_running = battle.state == "streaming"
        return battle

    def _end_with(self, battle: Battle) -> None:
        """The last event of a stream when no turn runs and no event is left: every stream must have one. A turn that
        ran and left no end was refused before its first event; its reason was told to the request that began it."""
        if self._was_running:
            self._out.append(_event("failed", FailedEvent(side="a", error=_REFUSED.body().error)))
        end = TurnFinishedEvent(turn=len(battle.turns), state=battle.state, is_kept=not self._was_running)
        self._out.append(_event("turn_finished", end))
        self.is_over = True


def _error(error: ApiError) -> bytes:
    return _event("error", error.body())


def _event(name: str, event: BaseModel) -> bytes:
    return encode(SseEvent(event.model_dump_json(), name))


def _is_void(event_id: EntryId, battle: Battle) -> bool:
    """Whether the event belongs to answers that were replaced: its turn was begun again after it."""
    order = entry_order(event_id)
    return order < entry_order(battle.run_from) and order[0] == len(battle.turns)
