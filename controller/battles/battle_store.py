"""Battles in Redis: create, read, begin a turn, advance it, stop it.

Each change is one script and therefore atomic, whichever controller asks for it. Knows no worker and no HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from controller.battles.battle_record import Battle, StoredTurn, parse_battle
from controller.battles.neutral_errors import OWNER_LOST, failed_event
from controller.errors import OwnershipLost
from controller.store.keys import EVENTS_TTL_MS, Keys
from controller.store.store import Store, StreamEntry, unavailable
from wire.entry_ids import EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId

TurnEnd = Literal["append", "finish", "refuse"]
Event = tuple[str, str]  #: SSE event name and its JSON


@dataclass(frozen=True)
class BegunTurn:
    """A turn that this controller owns: only it may write the turn's events, until it ends the turn or stops renewing
    its ownership."""

    battle_id: BattleId
    owner: str  #: random id of this ownership
    turn: int
    first_event: int  #: number of the first event to write
    run_from: EntryId  #: id of the last event before the turn


class BattleStore:
    """Reads and writes the keys `battle` and `events`. Every method raises ApiError STORE_UNAVAILABLE."""

    def __init__(self, store: Store, keys: Keys, *, battle_ttl_s: float, ownership_s: float) -> None:
        self._store = store
        self._keys = keys
        self._battle_ttl_ms = round(battle_ttl_s * 1000)
        self._ownership_ms = round(ownership_s * 1000)

    def _both_keys(self, battle_id: BattleId) -> list[str]:
        return [self._keys.battle(battle_id), self._keys.events(battle_id)]

    async def create(self, battle_id: BattleId, fields: Mapping[str, str]) -> None:
        """Write a new battle. `fields` are those of its hash, without times."""
        await self._store.run(
            "create_battle",
            [self._keys.battle(battle_id)],
            self._battle_ttl_ms,
            *(part for pair in fields.items() for part in pair),
        )

    async def read(self, battle_id: BattleId) -> Battle:
        """The battle now. Ends a turn whose controller has died. Raises ApiError BATTLE_NOT_FOUND."""
        now_ms, flat = await self._store.run(
            "read_battle",
            self._both_keys(battle_id),
            EVENTS_TTL_MS,
            OWNER_LOST.model_dump_json(),
            failed_event("a", OWNER_LOST),
            failed_event("b", OWNER_LOST),
        )
        if not flat:
            raise not_found()
        return parse_battle(battle_id, dict(zip(flat[::2], flat[1::2], strict=True)), int(now_ms))

    async def begin_turn(
        self, battle: Battle, turn: int, owner: str, stored: StoredTurn, changes: Mapping[str, str]
    ) -> BegunTurn:
        """Begin turn number `turn`, or answer it again, and write `changes` to the battle with it.

        `battle` must be as recent as its last turn. Raises the ApiError of `closed` and changes nothing then.
        """
        answer = await self._store.run(
            "begin_turn",
            self._both_keys(battle.battle_id),
            owner,
            self._ownership_ms,
            battle.run,
            turn,
            stored.model_dump_json(),
            self._battle_ttl_ms,
            EVENTS_TTL_MS,
            *(part for pair in changes.items() for part in pair),
        )
        if answer[0] != "ok":
            raise closed(answer[0])
        return BegunTurn(battle.battle_id, owner, turn, int(answer[1]), EntryId(answer[2]))

    async def advance(
        self,
        begun: BegunTurn,
        how: TurnEnd,
        first_event: int,
        events: Sequence[Event],
        changes: Mapping[str, str],
    ) -> bool:
        """Append `events` from number `first_event` on, write `changes`, and end the turn unless `how` is "append".

        May be repeated with the same arguments. Returns whether a stop was asked for. Raises OwnershipLost when the
        turn was ended by another process.
        """
        arguments: list[Any] = [begun.owner, self._ownership_ms, how, begun.turn, first_event, EVENTS_TTL_MS]
        arguments.append(len(events))
        arguments.extend(part for event in events for part in event)
        arguments.extend(part for pair in changes.items() for part in pair)
        answer = await self._store.run("advance_turn", self._both_keys(begun.battle_id), *arguments)
        if answer == "lost":
            raise OwnershipLost(begun.battle_id)
        return bool(answer == "stop")

    async def ask_stop(self, battle_id: BattleId) -> None:
        """Ask the controller that runs the turn to end it, if one runs. Raises ApiError BATTLE_NOT_FOUND."""
        if await self._store.run("stop_turn", [self._keys.battle(battle_id)]) == "":
            raise not_found()

    async def read_events(self, battle_id: BattleId, after: EntryId, *, block: bool) -> list[StreamEntry]:
        """Events after the id `after`; with `block`, waits for the first one as Store.read_stream does."""
        return await self._store.read_stream(self._keys.events(battle_id), after, block=block)


def not_found() -> ApiError:
    """The error for a battle id without a battle (404)."""
    return ApiError(ErrorCode.BATTLE_NOT_FOUND, "There is no such battle, or it has been forgotten.")


def closed(reason: str) -> ApiError:
    """The error for a turn or vote that is not accepted; `reason` is the battle's state or what a script returned."""
    match reason:
        case "missing":
            return not_found()
        case "streaming":
            return ApiError(ErrorCode.BATTLE_BUSY, "The models are still answering.")
        case "voted":
            return ApiError(ErrorCode.BATTLE_ALREADY_VOTED, "This battle has been voted on.")
        case "expired":
            return ApiError(ErrorCode.BATTLE_ALREADY_VOTED, "This battle is over: its time has run out.")
        case "aborted":
            return ApiError(ErrorCode.BATTLE_ABORTED, "This battle was aborted because a model failed.")
        case _:
            return unavailable()
