"""Battles in Redis: create, read, begin a turn, advance it, stop it, claim it when its controller has died. Turns of
chats are kept in the same way, under keys of their own.

Each change is one script and therefore atomic, whichever controller asks for it. Knows no worker and no HTTP.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from controller.battles.battle_record import Battle, StoredTurn, parse_battle, parse_battle_before_turn
from controller.errors import EventsLost, OwnershipLost
from controller.store.keys import EVENTS_TTL_MS, HISTORY_TTL_MS, Keys, TurnKeys
from controller.store.store import Store, StreamEntry, unavailable
from wire.entry_ids import EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId, Pseudonym

TurnEnd = Literal["append", "finish", "refuse", "release"]
Event = tuple[str, str, str]  #: SSE event name, its JSON, and JSON for other controllers only ("" for none)

BEGIN_PATIENCE_S = 2.0  #: an answer that is missing this long is unknown to the client, too
BEGIN_RETRY_S = 0.1
HISTORY_LENGTH = 100  #: battles that a voter's history holds
EVENTS_PAGE = 1000  #: events that are read at once
MAX_TAKEOVERS = 3  #: of one turn: a turn that ends its controllers must not end all of them
MAX_AGE_S = 900.0  #: a turn this old is not continued: its visitor has gone


@dataclass(frozen=True)
class BegunTurn:
    """A turn that this controller owns: only it may write the turn's events, until it ends the turn or stops renewing
    its ownership."""

    battle_id: BattleId
    owner: str  #: random id of this ownership
    turn: int
    run: int  #: number of turns and regenerations of the battle, this one included
    first_event: int  #: number of the first event to write
    run_from: EntryId  #: id of the last event before the turn
    age_s: float  #: time since the turn began, when this controller became its owner


@dataclass(frozen=True)
class ClaimedTurn:
    """A turn that another controller began and this one owns now, as it lies in the store."""

    battle_id: str
    owner: str
    first_event: int  #: number of the next event to write
    is_given_up: bool  #: too old, or taken over too often: it may only be ended
    fields: dict[str, str]  #: of the battle
    now_ms: int  #: of the store

    def turn(self) -> tuple[BegunTurn, Battle, StoredTurn]:
        """The turn, its battle as it was before it, and what was asked. Raises KeyError or ValueError for fields
        that are not understood."""
        battle = parse_battle_before_turn(BattleId(self.battle_id), self.fields, self.now_ms)
        number = int(self.fields["turn"])
        begun = BegunTurn(
            battle_id=battle.battle_id,
            owner=self.owner,
            turn=number,
            run=battle.run,
            first_event=self.first_event,
            run_from=battle.run_from,
            age_s=max(0, self.now_ms - int(self.fields.get("began_ms", self.now_ms))) / 1000,
        )
        return begun, battle, StoredTurn.model_validate_json(self.fields[f"turn:{number}"])


class TurnStore:
    """Conversations of one kind and their turns. Every method raises ApiError STORE_UNAVAILABLE.

    `ttl_s`: for how long a turn can be followed by another one; `kept_s`: for how long it can be read. `missing` makes
    the error for an id without a conversation."""

    def __init__(
        self,
        store: Store,
        keys: TurnKeys,
        *,
        ttl_s: float,
        kept_s: float,
        ownership_s: float,
        missing: Callable[[], ApiError],
    ) -> None:
        self._store = store
        self._turns = keys
        self._ttl_ms = round(ttl_s * 1000)
        self._kept_ms = round(kept_s * 1000)
        self._ownership_ms = round(ownership_s * 1000)
        self._missing = missing

    def _turn_keys(self, battle_id: BattleId) -> list[str]:
        return [self._turns.conversation(battle_id), self._turns.events(battle_id), self._turns.turns]

    async def read(self, battle_id: BattleId) -> Battle:
        """The battle now. Raises ApiError if there is none."""
        keys = [self._turns.conversation(battle_id), self._turns.turns]
        now_ms, flat = await self._store.run("read_battle", keys, battle_id)
        if not flat:
            raise self._missing()
        return parse_battle(battle_id, _pairs(flat), int(now_ms))

    async def begin_turn(
        self,
        battle: Battle,
        turn: int,
        owner: str,
        stored: StoredTurn,
        changes: Mapping[str, str],
        *,
        request_key: str | None = None,
    ) -> BegunTurn:
        """Begin turn number `turn`, or answer it again, and write `changes` to the battle with it.

        `battle` must be as recent as its last turn. A lost answer of the store is asked for again under the same
        `owner`, for BEGIN_PATIENCE_S. Raises the ApiError of `closed` and changes nothing then; after STORE_UNAVAILABLE
        the turn may have begun, and is then taken over as the turn of a dead controller is.
        """
        arguments: list[Any] = [battle.battle_id, owner, self._ownership_ms, battle.run, turn, stored.model_dump_json()]
        arguments += [self._ttl_ms, EVENTS_TTL_MS, request_key or "", self._kept_ms]
        arguments.extend(part for pair in changes.items() for part in pair)
        give_up_at = time.monotonic() + BEGIN_PATIENCE_S
        while True:
            try:
                answer = await self._store.run("begin_turn", self._turn_keys(battle.battle_id), *arguments)
                break
            except ApiError:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(BEGIN_RETRY_S)
        if answer[0] != "ok":
            raise self._missing() if answer[0] == "missing" else closed(answer[0])
        return BegunTurn(battle.battle_id, owner, turn, battle.run + 1, int(answer[1]), EntryId(answer[2]), age_s=0.0)

    async def claim_turns(self, limit: int) -> list[ClaimedTurn]:
        """Become the owner of at most `limit` turns whose controllers do not renew their ownership any more. Of
        controllers that ask at the same time one gets a turn."""
        now_ms, claims = await self._store.run(
            "claim_turns",
            [self._turns.turns],
            self._turns.prefix,
            self._turns.events_suffix,
            self._ownership_ms,
            MAX_TAKEOVERS,
            round(MAX_AGE_S * 1000),
            *(secrets.token_hex(8) for _ in range(limit)),
        )
        return [
            ClaimedTurn(battle_id, owner, int(first), given_up == "1", _pairs(flat), int(now_ms))
            for battle_id, owner, first, given_up, flat in claims
        ]

    async def read_turn_events(self, begun: BegunTurn) -> list[StreamEntry]:
        """All events of the turn that have been written."""
        entries: list[StreamEntry] = []
        after, key = begun.run_from, self._turns.events(begun.battle_id)
        while page := await self._store.range_stream(key, after, count=EVENTS_PAGE):
            entries += page
            after = EntryId(page[-1][0])
        return entries

    async def advance(
        self,
        begun: BegunTurn,
        how: TurnEnd,
        first_event: int,
        events: Sequence[Event],
        changes: Mapping[str, str],
    ) -> bool:
        """Append `events` from number `first_event` on, write `changes`, and end the turn unless `how` is "append".
        "release" gives the turn to the next controller that claims it.

        May be repeated with the same arguments. Returns whether a stop was asked for. Raises OwnershipLost when another
        process owns the turn or has ended it, EventsLost when events before `first_event` must be written again.
        """
        arguments: list[Any] = [begun.battle_id, begun.owner, self._ownership_ms, how, begun.turn, first_event]
        arguments += [EVENTS_TTL_MS, len(events), begun.first_event]
        arguments.extend(part for event in events for part in event)
        arguments.extend(part for pair in changes.items() for part in pair)
        answer = await self._store.run("advance_turn", self._turn_keys(begun.battle_id), *arguments)
        if answer == "lost":
            raise OwnershipLost(begun.battle_id)
        if isinstance(answer, int):
            raise EventsLost(answer)
        return bool(answer == "stop")

    async def ask_stop(self, battle_id: BattleId) -> None:
        """Ask the controller that runs the turn to end it, if one runs. Raises ApiError if there is no battle."""
        if await self._store.run("stop_turn", [self._turns.conversation(battle_id)]) == "":
            raise self._missing()

    async def read_events(self, battle_id: BattleId, after: EntryId, *, block: bool) -> list[StreamEntry]:
        """Events after the id `after`; with `block`, waits for the first one as Store.read_stream does."""
        return await self._store.read_stream(self._turns.events(battle_id), after, block=block)


class BattleStore(TurnStore):
    """Reads and writes the keys `battle`, `events` and `turns`. A late visitor reads "expired" and not "no such
    battle"."""

    def __init__(self, store: Store, keys: Keys, *, battle_ttl_s: float, ownership_s: float) -> None:
        super().__init__(
            store,
            keys.battle_turns,
            ttl_s=battle_ttl_s,
            kept_s=2 * battle_ttl_s,
            ownership_s=ownership_s,
            missing=not_found,
        )
        self._keys = keys

    async def create(
        self,
        battle_id: BattleId,
        fields: Mapping[str, str],
        history_of: Pseudonym | None = None,
        *,
        is_returning: bool = True,
    ) -> None:
        """Write a new battle. `fields` are those of its hash, without times; `history_of`: whose history it enters.
        Without `is_returning` they may never show the cookie that they get now: then a new history ends with the
        battle."""
        keys = [self._keys.battle(battle_id)]
        if history_of is not None:
            keys.append(self._keys.history(history_of))
        await self._store.run(
            "create_battle",
            keys,
            self._ttl_ms,
            battle_id,
            HISTORY_LENGTH,
            HISTORY_TTL_MS if is_returning else 2 * self._ttl_ms,
            *(part for pair in fields.items() for part in pair),
        )


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def not_found() -> ApiError:
    """The error for a battle id without a battle (404)."""
    return ApiError(ErrorCode.BATTLE_NOT_FOUND, "There is no such battle, or it has been forgotten.")


def stale(battle: Battle) -> ApiError:
    """The error for a request of a page that does not know how far the battle has come."""
    return ApiError(ErrorCode.STALE_TURN, f"The battle has {len(battle.turns)} turns by now.", param="number")


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
