"""How a turn begins, whichever kind of conversation it belongs to: each request once, and a turn that is asked to stop.

Used by Battles and by Chats, which decide what may begin.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from controller.battles.battle_record import Battle, StoredTurn
from controller.battles.battle_store import TurnStore, closed
from controller.battles.turn_runner import TurnRunner
from controller.workers.dispatch import Lane
from wire.battles import Side
from wire.entry_ids import EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId

STOP_WAIT_S = 3.0  #: longest wait for the end of a stopped turn
STOP_POLL_S = 0.03


@dataclass(frozen=True)
class TurnRequest:
    """A request to begin a turn, as far as it tells whether it has been received before."""

    key: str | None  #: its Idempotency-Key
    content: str | None  #: None: answer the last turn again

    def has_begun(self, battle: Battle) -> bool:
        """Whether it has begun the last turn. Raises ApiError INVALID_REQUEST if its key belongs to another request."""
        number = None if self.key is None else battle.begun_by(self.key)
        if number is None:
            return False
        if number < len(battle.turns) or self.content not in (None, battle.turns[-1].content):
            raise ApiError(ErrorCode.INVALID_REQUEST, "This key was used for another turn.", param="Idempotency-Key")
        return True


class TurnTaking:
    """Begins and stops the turns of one store. Every method raises ApiError, also STORE_UNAVAILABLE."""

    def __init__(self, store: TurnStore, runner: TurnRunner) -> None:
        self._store = store
        self._runner = runner

    async def once(
        self,
        read: Callable[[], Awaitable[Battle]],
        request: TurnRequest,
        begin: Callable[[Battle], Awaitable[EntryId]],
    ) -> EntryId:
        """The position before the turn that `request` has begun; if it has begun none, that of `begin`."""
        battle = await read()
        if request.has_begun(battle):
            return battle.run_from
        if battle.state not in ("open", "answered"):
            raise closed(battle.state)
        try:
            return await begin(battle)
        except ApiError as error:
            if error.code is not ErrorCode.BATTLE_BUSY:
                raise
            battle = await read()  # the same request may have arrived twice at the same time
            if not request.has_begun(battle):
                raise
            return battle.run_from

    async def begin(
        self,
        battle: Battle,
        turn: int,
        asked: StoredTurn,
        lanes: dict[Side, Lane],
        changes: Mapping[str, str],
        *,
        request_key: str | None,
    ) -> EntryId:
        """Begin turn number `turn` of `battle` on these lanes, or answer it again. Returns, when its events may be
        read, the id of the last event before them."""
        try:
            begun = await self._store.begin_turn(
                battle, turn, secrets.token_hex(8), asked, changes, request_key=request_key
            )
            run = self._runner.start(battle, begun, asked, lanes)
        except BaseException:
            for lane in lanes.values():
                await lane.close()
            raise
        await run.admitted()
        return begun.run_from

    async def stop(self, battle_id: BattleId) -> Battle:
        """Ask the running turn to end, whichever controller runs it. Returns the battle when it has ended, or after
        STOP_WAIT_S at the latest."""
        self._runner.stop(battle_id)
        await self._store.ask_stop(battle_id)
        give_up_at = time.monotonic() + STOP_WAIT_S
        while True:
            battle = await self._store.read(battle_id)
            if battle.state != "streaming" or time.monotonic() > give_up_at:
                return battle
            await asyncio.sleep(STOP_POLL_S)
