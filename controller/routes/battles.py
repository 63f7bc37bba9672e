"""Battles over HTTP: begin one, read one. turns.py has their turns, votes.py their votes."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.identity import Identities
from controller.access.rate_limits import RateLimiter
from controller.admin.terms import Terms
from controller.battles.battles import Battles
from controller.routes.path_ids import BATTLE_ID, BattleInPath
from controller.routes.replies import json_reply
from service_kit.bodies import Bodies
from service_kit.route_docs import Answer, documented
from wire.battles import BattleView, CreateBattle
from wire.errors import ErrorCode


def add_battle_routes(
    router: APIRouter,
    bodies: Bodies,
    identities: Identities,
    limits: RateLimiter,
    battles: Battles,
    terms: Terms,
) -> None:
    """Add the routes of battles to `router`."""

    @router.post("/arena/battles")
    @documented(
        "Battles",
        "Begin a battle",
        request=CreateBattle,
        example={"mode": "anonymous"},
        answer=Answer(json=BattleView, status=201),
        errors=(
            ErrorCode.VOTER_NOT_KNOWN,
            ErrorCode.CAPTCHA_NEEDED,
            ErrorCode.TERMS_NOT_ACCEPTED,
            ErrorCode.MODEL_NOT_FOUND,
            ErrorCode.NOT_A_CHAT_MODEL,
            ErrorCode.RATE_LIMITED,
            ErrorCode.QUEUE_FULL,
            ErrorCode.NO_WORKER,
            ErrorCode.NOT_ENOUGH_MODELS,
            ErrorCode.STORE_UNAVAILABLE,
        ),
    )
    async def create(request: Request) -> Response:
        """Draws two models, or takes those that a named battle asks for, and stores the battle. The answer names no
        model before the vote, except in a named battle. Who begins a battle may vote on it: the cookie that the request
        has or gets with the answer, or without cookies the address."""
        wanted = await bodies.parse(request, CreateBattle)
        await limits.check(identities.client_of(request), "battle")
        await terms.require(await identities.of(request))
        visitor, headers = await identities.welcome(request)
        battle = await battles.create(wanted, visitor)
        reply = json_reply(battle.view(battles.max_turns), status=201)
        reply.headers.update(headers)
        return reply

    @router.get("/arena/battles/{battle_id}")
    @documented(
        "Battles",
        "Read a battle",
        parameters=BATTLE_ID,
        answer=BattleView,
        errors=(ErrorCode.BATTLE_NOT_FOUND, ErrorCode.STORE_UNAVAILABLE),
    )
    async def read(battle_id: BattleInPath) -> Response:
        """The battle with all its turns, those that are still being answered without their text."""
        return json_reply((await battles.read(battle_id)).view(battles.max_turns))
