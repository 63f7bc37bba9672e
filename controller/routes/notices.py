"""What visitors read of the operator: notices, and the terms, which they accept here."""

from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.identity import Identities
from controller.access.rate_limits import RateLimiter
from controller.admin.arena_state import ArenaState
from controller.admin.terms import Terms
from controller.routes.replies import json_reply
from service_kit.bodies import Bodies
from service_kit.route_docs import documented
from wire.errors import ErrorCode
from wire.notices import AcceptTerms, NoticeList, TermsView


def add_notice_routes(
    router: APIRouter,
    bodies: Bodies,
    identities: Identities,
    limits: RateLimiter,
    state: ArenaState,
    terms: Terms,
    clock: Callable[[], float],
) -> None:
    """Add the routes to `router`. `clock`: the store's Unix time."""

    @router.get("/arena/notices")
    @documented(
        "Visitors",
        "Notices of the operator",
        answer=NoticeList,
        errors=(ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def notices(request: Request) -> Response:
        """Those that are shown now."""
        await limits.check(identities.client_of(request), "board")
        now = clock()
        return json_reply(NoticeList(notices=tuple(notice for notice in state.notices if notice.is_shown(now))))

    @router.get("/arena/terms")
    @documented(
        "Visitors",
        "The terms of this arena",
        answer=TermsView,
        errors=(ErrorCode.VOTER_NOT_KNOWN, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def show_terms(request: Request) -> Response:
        """Their text, and whether this visitor has accepted them. Without terms there is no text, and nothing to
        accept."""
        await limits.check(identities.client_of(request), "board")
        return json_reply(await terms.view(await identities.of(request)))

    @router.post("/arena/terms")
    @documented(
        "Visitors",
        "Accept the terms",
        request=AcceptTerms,
        example={"version": "0123456789ab"},
        answer=TermsView,
        errors=(ErrorCode.VOTER_NOT_KNOWN, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def accept(request: Request) -> Response:
        """Recorded for the visitor's cookie; for a client without cookies, for its address until tomorrow.
        `invalid_request`: the version is not in force any more, so there is another text to read."""
        wanted = await bodies.parse(request, AcceptTerms)
        await limits.check(identities.client_of(request), "terms")
        return json_reply(await terms.accept(await identities.of(request), wanted.version))
