"""The boards over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.routes.replies import json_bytes_reply
from controller.votes.boards.board_view import MIN_VOTES, BoardQuery
from controller.votes.boards.history import MAX_DAYS
from controller.votes.boards.leaderboards import Leaderboards
from service_kit.route_docs import documented
from wire.errors import ErrorCode
from wire.leaderboard import CohortView, FitModel, HistoryView, LeaderboardView, Weighting

DEFAULT_DAYS = 90


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
            "fit": "`bradley_terry`: a tie is half a win; `rao_kupper`: ties have a probability of their own, which "
            "spreads the ratings wider",
            "weighting": "`votes`: each counts one; `propensity`: as if all pairs had been drawn alike; `voters`: less "
            "for a voter who contradicts the others",
            "anchor": "models whose mean rating is 1000, separated by commas; default: `AGON_BOARD_ANCHOR`",
        },
        answer=LeaderboardView,
        errors=(ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE, ErrorCode.INTERNAL_ERROR),
    )
    async def leaderboard(
        request: Request,
        board: str = "overall",
        style_control: bool = False,
        min_votes: Annotated[int, Query(ge=0, le=1_000_000)] = MIN_VOTES,
        fit: FitModel = "bradley_terry",
        weighting: Weighting = "votes",
        anchor: Annotated[str | None, Query(max_length=4000)] = None,
    ) -> Response:
        """Ratings with 95 % intervals, fitted to every vote that is older than a second (`AGON_BOARD_REFRESH_S`), the
        ranks that the differences leave open, and what the votes say of neighbours, however often one looks."""
        client = addresses.of(request)
        await limits.check(client, "board")
        anchors = None if anchor is None else tuple(sorted({name.strip() for name in anchor.split(",")} - {""}))
        query = BoardQuery(board, style_control, min_votes, fit, weighting, anchors)
        return json_bytes_reply(await boards.view(query, visitor=client.identity))

    @router.get("/arena/leaderboard/history")
    @documented(
        "Votes",
        "Ratings over time",
        parameters={"board": "as for the leaderboard", "days": "the last so many days, the present one included"},
        answer=HistoryView,
        errors=(ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def history(
        request: Request, board: str = "overall", days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = DEFAULT_DAYS
    ) -> Response:
        """The board at the end of each day (UTC), with the votes and judgements of then, and the votes of each day."""
        client = addresses.of(request)
        await limits.check(client, "board")
        return json_bytes_reply(await boards.history(board, days, visitor=client.identity))

    @router.get("/arena/leaderboard/cohorts")
    @documented(
        "Votes",
        "Compare two groups of voters",
        parameters={"first": "a cohort that voters were invited to, or a board", "second": "another one"},
        answer=CohortView,
        errors=(ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def cohorts(request: Request, first: str, second: str) -> Response:
        """The ratings by each group, on one scale, and the differences with 95 % intervals."""
        client = addresses.of(request)
        await limits.check(client, "board")
        return json_bytes_reply(await boards.cohorts(first, second, visitor=client.identity))
