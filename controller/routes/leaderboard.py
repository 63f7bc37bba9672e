"""The boards over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.routes.replies import json_reply
from controller.votes.leaderboard import MIN_VOTES, Leaderboards


def add_leaderboard_route(router: APIRouter, addresses: Addresses, limits: RateLimiter, boards: Leaderboards) -> None:
    """Add the route of the boards."""

    @router.get("/arena/leaderboard")
    async def leaderboard(
        request: Request,
        board: str = "overall",
        style_control: bool = False,
        min_votes: Annotated[int, Query(ge=0, le=1_000_000)] = MIN_VOTES,
    ) -> Response:
        """`min_votes`: below it a row gets no interval but the flag "too_few_votes"."""
        await limits.check(addresses.of(request), "board")
        return json_reply(await boards.view(board, style_control=style_control, min_votes=min_votes))
