"""The boards over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.routes.replies import json_reply
from controller.votes.leaderboard import MIN_VOTES, Leaderboards
from service_kit.route_docs import documented
from wire.errors import ErrorCode
from wire.leaderboard import LeaderboardView


def add_leaderboard_route(router: APIRouter, addresses: Addresses, limits: RateLimiter, boards: Leaderboards) -> None:
    """Add the route of the boards."""

    @router.get("/arena/leaderboard")
    @documented(
        "Votes",
        "The leaderboard",
        parameters={
            "board": "which votes count; the answer's `boards` lists the names",
            "style_control": "estimate the influence of length and markdown and take it out of the ratings",
            "min_votes": 'a row with fewer votes has no interval but the flag "too_few_votes"',
        },
        answer=LeaderboardView,
        errors=(ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def leaderboard(
        request: Request,
        board: str = "overall",
        style_control: bool = False,
        min_votes: Annotated[int, Query(ge=0, le=1_000_000)] = MIN_VOTES,
    ) -> Response:
        """Bradley-Terry ratings with 95 % intervals, fitted to every vote that is older than a second."""
        await limits.check(addresses.of(request), "board")
        return json_reply(await boards.view(board, style_control=style_control, min_votes=min_votes))
