"""The turns of a battle over HTTP: take one, follow its events, stop it, answer again."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.battles.battles import Battles
from controller.battles.turn_stream import TurnStream, parse_event_id
from controller.routes.path_ids import BATTLE_ID, BattleInPath
from controller.routes.replies import json_reply
from service_kit.bodies import Bodies
from service_kit.event_stream import EventStream
from service_kit.route_docs import Answer, documented
from wire.battles import (
    BattleView,
    CreateTurn,
    DeltaEvent,
    FailedEvent,
    FinishedEvent,
    RestartedEvent,
    TurnFinishedEvent,
    WakingEvent,
)
from wire.entry_ids import EntryId
from wire.errors import ApiError, ErrorBody, ErrorCode

TURN_EVENTS = {
    "waking": WakingEvent,
    "delta": DeltaEvent,
    "finished": FinishedEvent,
    "failed": FailedEvent,
    "restarted": RestartedEvent,
    "turn_finished": TurnFinishedEvent,
    "error": ErrorBody,
}
TURN_ERRORS = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    ErrorCode.BATTLE_NOT_FOUND,
    ErrorCode.BATTLE_BUSY,
    ErrorCode.BATTLE_ALREADY_VOTED,
    ErrorCode.BATTLE_ABORTED,
    ErrorCode.RATE_LIMITED,
    ErrorCode.QUEUE_FULL,
    ErrorCode.NO_WORKER,
    ErrorCode.NOT_ENOUGH_MODELS,
    ErrorCode.STORE_UNAVAILABLE,
)


REQUEST_KEY = "Idempotency-Key"
TURN_HEADERS = {
    REQUEST_KEY: "up to 64 letters, digits, `-` or `_`, chosen by the client for this turn. Sent again, the request "
    "begins nothing and gets the events of the turn that it began: from the first one, or after `Last-Event-ID`",
    "Last-Event-ID": "id of the last event received, where a request is sent again",
}


def request_key(request: Request) -> str | None:
    """The Idempotency-Key of a request, if it has one. Raises ApiError INVALID_REQUEST."""
    key = request.headers.get(REQUEST_KEY)
    if key is not None and not re.fullmatch("[A-Za-z0-9_-]{1,64}", key):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The key must be 1 to 64 letters, digits, - or _.", param=REQUEST_KEY)
    return key


def last_event_id(request: Request) -> EntryId | None:
    """Its Last-Event-ID, if it has one. Raises ApiError INVALID_REQUEST."""
    text = request.headers.get("last-event-id")
    return parse_event_id(text) if text else None


def add_turn_routes(
    router: APIRouter,
    bodies: Bodies,
    addresses: Addresses,
    limits: RateLimiter,
    battles: Battles,
    stream: TurnStream,
) -> None:
    """Add the routes of a battle's turns to `router`."""

    @router.post("/arena/battles/{battle_id}/turns")
    @documented(
        "Battles",
        "Send a message to both sides",
        parameters=BATTLE_ID,
        headers=TURN_HEADERS,
        request=CreateTurn,
        example={"content": "What is 17 + 25?"},
        answer=Answer(events=TURN_EVENTS),
        errors=(*TURN_ERRORS, ErrorCode.BATTLE_FULL, ErrorCode.STALE_TURN),
    )
    async def take_turn(request: Request, battle_id: BattleInPath) -> Response:
        """Reserves a place at a worker of each side, or refuses both, and streams the two answers. The turn goes on
        when the client leaves: a GET of the stream with `Last-Event-ID` gives what it missed."""
        turn = await bodies.parse(request, CreateTurn)
        key, after = request_key(request), last_event_id(request)
        await limits.check(addresses.of(request), "turn")
        before = await battles.take_turn(battle_id, turn.content, key, number=turn.number)
        return EventStream(stream.follow(battle_id, after or before))

    @router.post("/arena/battles/{battle_id}/regenerate")
    @documented(
        "Battles",
        "Answer the last turn again",
        parameters={
            **BATTLE_ID,
            "number": "the number of the last turn, as the client sees the battle; refused with `stale_turn` if "
            "another page has gone on with it meanwhile",
        },
        headers=TURN_HEADERS,
        answer=Answer(events=TURN_EVENTS),
        errors=(*TURN_ERRORS, ErrorCode.STALE_TURN),
    )
    async def regenerate(
        request: Request, battle_id: BattleInPath, number: Annotated[int | None, Query(ge=1)] = None
    ) -> Response:
        """Both answers of the last turn are replaced. The request has no body. `invalid_request`: there is no turn."""
        key, after = request_key(request), last_event_id(request)
        await limits.check(addresses.of(request), "turn")
        before = await battles.regenerate(battle_id, key, number=number)
        return EventStream(stream.follow(battle_id, after or before))

    @router.get("/arena/battles/{battle_id}/stream")
    @documented(
        "Battles",
        "Follow the events of the current turn",
        parameters=BATTLE_ID,
        headers={"Last-Event-ID": "id of the last event received; without it the turn comes from its beginning"},
        answer=Answer(events=TURN_EVENTS),
        errors=(
            ErrorCode.INVALID_REQUEST,
            ErrorCode.BATTLE_NOT_FOUND,
            ErrorCode.RATE_LIMITED,
            ErrorCode.STORE_UNAVAILABLE,
        ),
    )
    async def resume(request: Request, battle_id: BattleInPath) -> Response:
        """Any controller of the arena can resume the stream. It ends with `turn_finished`, also where no turn runs."""
        await limits.check(addresses.of(request), "stream")
        after = last_event_id(request)
        await battles.read(battle_id)  # a 404 is better than a stream that says so
        return EventStream(stream.follow(battle_id, after))

    @router.post("/arena/battles/{battle_id}/stop")
    @documented(
        "Battles",
        "Stop the running turn",
        parameters=BATTLE_ID,
        answer=BattleView,
        errors=(ErrorCode.BATTLE_NOT_FOUND, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def stop(request: Request, battle_id: BattleInPath) -> Response:
        """Answers when the turn has ended, or after three seconds with the battle as it is then. What the models have
        written so far stays. Without a running turn nothing changes."""
        await limits.check(addresses.of(request), "stop")
        battle = await battles.stop(battle_id)
        return json_reply(battle.view(battles.max_turns))
