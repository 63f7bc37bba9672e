"""Why votes are not rated: the counts for everybody, and judgements by an administrator."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.admin.action_log import ActionLog, actor_of
from controller.routes.replies import json_reply
from controller.votes.integrity.judge import Judge
from service_kit.bodies import Bodies
from service_kit.route_docs import documented
from wire.errors import ErrorCode
from wire.judgements import CastJudgement, IntegrityView, Judgement


def add_integrity_routes(
    user: APIRouter,
    admin: APIRouter,
    bodies: Bodies,
    addresses: Addresses,
    limits: RateLimiter,
    judge: Judge,
    actions: ActionLog,
) -> None:
    """Add the public counts to `user`, the judgements to `admin`."""

    @user.get("/arena/integrity")
    @documented(
        "Votes",
        "Votes that are not rated, and why",
        answer=IntegrityView,
        errors=(ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def integrity(request: Request) -> Response:
        """Counts after the last round of the judge, and the limits in force. Names no voter."""
        await limits.check(addresses.of(request), "board")
        return json_reply(await judge.view())

    @admin.post("/arena/integrity/judgements")
    @documented(
        "Votes",
        "Take votes out of the ratings, or back in",
        request=CastJudgement,
        example={"action": "flag", "battle_ids": ["4XkTzvQnB0"]},
        answer=Judgement,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def append_judgement(request: Request) -> Response:
        """Appends a judgement to the vote log. The judge leaves alone what an administrator has judged."""
        wanted = await bodies.parse(request, CastJudgement)
        subject = wanted.voter or wanted.cohort or ", ".join(wanted.battle_ids)
        values = wanted.model_dump(exclude={"note"}, exclude_defaults=True) | {"action": wanted.action}
        await actions.append(actor_of(request, addresses), "judge_votes", subject, values, wanted.note)
        return json_reply(await judge.append(wanted))
