"""Invited voters over HTTP: the administrator invites, lists and revokes; a client joins."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.identity import Identities
from controller.access.invitations import Invitations
from controller.access.rate_limits import RateLimiter
from controller.admin.action_log import ActionLog, actor_of
from controller.routes.replies import json_reply
from service_kit.bodies import Bodies
from service_kit.route_docs import documented
from wire.captcha import CheckReply, CheckVisitor
from wire.errors import ErrorCode
from wire.invitations import CreateInvitation, Invitation, InvitationList, JoinReply

#: A text that is no name or no token is that of nothing: the answer is 404.
_Text = Annotated[str, Path()]


def add_join_route(router: APIRouter, bodies: Bodies, identities: Identities, limits: RateLimiter) -> None:
    """Add the routes by which a client becomes a voter: with a captcha, or with an invitation."""

    @router.post("/arena/voters/check")
    @documented(
        "Voters",
        "Show that a visitor is a person",
        request=CheckVisitor,
        example={"response": "what-the-widget-gave"},
        answer=CheckReply,
        errors=(ErrorCode.CAPTCHA_FAILED, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def check(request: Request) -> Response:
        """Where `AGON_CAPTCHA_VERIFY_URL` is set, battles need the cookie that this gives; the web UI's page `/check`
        does it for browsers."""
        solved = await bodies.parse(request, CheckVisitor)
        await limits.check(identities.client_of(request), "check")
        found, headers = await identities.check_visitor(request, solved.response)
        reply = json_reply(found)
        reply.headers.update(headers)
        return reply

    @router.post("/arena/voters/join/{invitation}")
    @documented(
        "Voters",
        "Become an invited voter",
        parameters={"invitation": "token of the invitation"},
        answer=JoinReply,
        errors=(ErrorCode.INVITATION_NOT_FOUND, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def join(request: Request, invitation: _Text) -> Response:
        """Sets the cookie of the invitation, with which battles are begun and voted on as this voter. People follow a
        link to the web UI, `/join/TOKEN`, which does this for their browser. The request has no body."""
        await limits.check(identities.client_of(request), "join")
        found, headers = await identities.join(request, invitation)
        reply = json_reply(JoinReply(name=found.name, cohort=found.cohort))
        reply.headers.update(headers)
        return reply


def add_invitation_routes(
    router: APIRouter, bodies: Bodies, invitations: Invitations, addresses: Addresses, actions: ActionLog
) -> None:
    """Add the routes of invitations; `router` is the admin's."""

    @router.post("/arena/voters/invitations")
    @documented(
        "Voters",
        "Invite a voter",
        request=CreateInvitation,
        example={"name": "ada", "cohort": "staff"},
        answer=Invitation,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def invite(request: Request) -> Response:
        """A name that is invited already keeps its invitation and its cohort, so the request may be repeated."""
        wanted = await bodies.parse(request, CreateInvitation)
        values = {} if wanted.cohort is None else {"cohort": wanted.cohort}
        await actions.append(actor_of(request, addresses), "invite_voter", wanted.name, values)
        return json_reply(await invitations.invite(wanted.name, wanted.cohort))

    @router.get("/arena/voters/invitations")
    @documented("Voters", "List the invitations", answer=InvitationList, errors=(ErrorCode.STORE_UNAVAILABLE,))
    async def list_invitations() -> Response:
        """Revoked ones, too. Each has its token, so keep the list as you keep the links."""
        return json_reply(InvitationList(invitations=tuple(await invitations.all())))

    @router.delete("/arena/voters/invitations/{name}")
    @documented(
        "Voters",
        "Revoke an invitation",
        parameters={"name": "of the voter"},
        answer=Invitation,
        errors=(ErrorCode.INVITATION_NOT_FOUND, ErrorCode.STORE_UNAVAILABLE),
    )
    async def revoke(request: Request, name: _Text) -> Response:
        """Its cookie holds for no battle and no vote after this; votes that were cast stay. The name may be invited
        again, as another voter."""
        await actions.append(actor_of(request, addresses), "revoke_voter", name)
        return json_reply(await invitations.revoke(name))
