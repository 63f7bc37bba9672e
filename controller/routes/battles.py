"""Battles over HTTP: create, read, take a turn, follow its events, stop, answer again."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.battles.battles import Battles
from controller.battles.turn_stream import TurnStream, parse_event_id
from controller.routes.replies import json_reply
from service_kit.bodies import Bodies
from service_kit.event_stream import EventStream
from wire.battles import CreateBattle, CreateTurn


def add_battle_routes(
    router: APIRouter,
    bodies: Bodies,
    addresses: Addresses,
    limits: RateLimiter,
    battles: Battles,
    stream: TurnStream,
) -> None:
    """Add the routes of battles to `router`."""

    @router.post("/arena/battles")
    async def create(request: Request) -> Response:
        wanted = await bodies.parse(request, CreateBattle)
        client = addresses.of(request)
        await limits.check(client, "battle")
        battle = await battles.create(wanted, client.identity)
        return json_reply(battle.view(battles.max_turns), status=201)

    @router.get("/arena/battles/{battle_id}")
    async def read(battle_id: str) -> Response:
        return json_reply((await battles.read(battle_id)).view(battles.max_turns))

    @router.post("/arena/battles/{battle_id}/turns")
    async def take_turn(request: Request, battle_id: str) -> Response:
        turn = await bodies.parse(request, CreateTurn)
        await limits.check(addresses.of(request), "turn")
        run = await battles.take_turn(battle_id, turn.content)
        return EventStream(stream.follow(battle_id, run.begun.run_from))

    @router.post("/arena/battles/{battle_id}/regenerate")
    async def regenerate(request: Request, battle_id: str) -> Response:
        await limits.check(addresses.of(request), "turn")
        run = await battles.regenerate(battle_id)
        return EventStream(stream.follow(battle_id, run.begun.run_from))

    @router.get("/arena/battles/{battle_id}/stream")
    async def resume(request: Request, battle_id: str) -> Response:
        await limits.check(addresses.of(request), "stream")
        last_event_id = request.headers.get("last-event-id")
        after = parse_event_id(last_event_id) if last_event_id else None
        await battles.read(battle_id)  # a 404 is better than a stream that says so
        return EventStream(stream.follow(battle_id, after))

    @router.post("/arena/battles/{battle_id}/stop")
    async def stop(request: Request, battle_id: str) -> Response:
        """Answers when the turn has ended, or after a few seconds with the battle as it is then."""
        await limits.check(addresses.of(request), "stop")
        battle = await battles.stop(battle_id)
        return json_reply(battle.view(battles.max_turns))
