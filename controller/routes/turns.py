"""The turns of a battle over HTTP: take one, follow its events, stop it, answer again."""

from fastapi import APIRouter, Request
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
)
from wire.errors import ErrorBody, ErrorCode

TURN_EVENTS = {
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
        request=CreateTurn,
        example={"content": "What is 17 + 25?"},
        answer=Answer(events=TURN_EVENTS),
        errors=(*TURN_ERRORS, ErrorCode.BATTLE_FULL),
    )
    async def take_turn(request: Request, battle_id: BattleInPath) -> Response:
        """Reserves a place at a worker of each side, or refuses both, and streams the two answers. The turn goes on
        when the client leaves: a GET of the stream with `Last-Event-ID` gives what it missed."""
        turn = await bodies.parse(request, CreateTurn)
        await limits.check(addresses.of(request), "turn")
        run = await battles.take_turn(battle_id, turn.content)
        return EventStream(stream.follow(battle_id, run.begun.run_from))

    @router.post("/arena/battles/{battle_id}/regenerate")
    @documented(
        "Battles",
        "Answer the last turn again",
        parameters=BATTLE_ID,
        answer=Answer(events=TURN_EVENTS),
        errors=TURN_ERRORS,
    )
    async def regenerate(request: Request, battle_id: BattleInPath) -> Response:
        """Both answers of the last turn are replaced. The request has no body. `invalid_request`: there is no turn."""
        await limits.check(addresses.of(request), "turn")
        run = await battles.regenerate(battle_id)
        return EventStream(stream.follow(battle_id, run.begun.run_from))

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
        last_event_id = request.headers.get("last-event-id")
        after = parse_event_id(last_event_id) if last_event_id else None
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
