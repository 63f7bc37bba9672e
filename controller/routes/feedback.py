"""Feedback on a vote over HTTP: add to one's vote, read what one has added."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.identity import Identities
from controller.access.rate_limits import RateLimiter
from controller.routes.path_ids import BATTLE_ID, BattleInPath
from controller.routes.replies import json_reply
from controller.votes.feedback import Feedback
from service_kit.bodies import Bodies
from service_kit.route_docs import documented
from wire.errors import ErrorCode
from wire.feedback import FeedbackReply, GiveFeedback

_ERRORS = (
    ErrorCode.VOTER_NOT_KNOWN,
    ErrorCode.BATTLE_NOT_FOUND,
    ErrorCode.NOT_YOUR_BATTLE,
    ErrorCode.RATE_LIMITED,
    ErrorCode.STORE_UNAVAILABLE,
)


def add_feedback_routes(
    router: APIRouter, bodies: Bodies, identities: Identities, limits: RateLimiter, feedback: Feedback
) -> None:
    """Add the routes of feedback to `router`."""

    @router.post("/arena/battles/{battle_id}/feedback")
    @documented(
        "Votes",
        "Add to one's vote",
        parameters=BATTLE_ID,
        request=GiveFeedback,
        example={"reasons": ["accuracy"], "thumbs": {"a": "up"}},
        answer=FeedbackReply,
        errors=(*_ERRORS, ErrorCode.BATTLE_NOT_FINISHED, ErrorCode.FEEDBACK_FULL),
    )
    async def add(request: Request, battle_id: BattleInPath) -> Response:
        """Reasons, a comment and a thumb for each side, once the battle is voted on. The vote stays as it is, and no
        rating counts what is added. Each addition is an entry of the vote log and replaces the one before it; the same
        one sent again adds nothing. The answer leaves when it is on disk. `battle_not_finished`: there is no vote
        yet."""
        wanted = await bodies.parse(request, GiveFeedback)
        await limits.check(identities.client_of(request), "feedback")
        return json_reply(await feedback.add(battle_id, wanted, await identities.of(request)))

    @router.get("/arena/battles/{battle_id}/feedback")
    @documented(
        "Votes", "Read what one has added to one's vote", parameters=BATTLE_ID, answer=FeedbackReply, errors=_ERRORS
    )
    async def read(request: Request, battle_id: BattleInPath) -> Response:
        """The last addition, for the voter alone; empty where there is none."""
        await limits.check(identities.client_of(request), "feedback")
        return json_reply(await feedback.read(battle_id, await identities.of(request)))
