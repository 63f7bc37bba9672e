"""The route of the leaderboard's CSV files."""

from fastapi import FastAPI, Request, Response

from webui.boards import Boards
from webui.client import BoardQuery
from webui.controllers import ControllerUnreachable
from webui.ranking import csv_files
from webui.visitors import Visitor, visitor_in
from wire.errors import ApiError, ErrorCode
from wire.leaderboard import FitModel, Weighting


def add_csv_route(app: FastAPI, boards: Boards) -> None:
    """Add `GET /leaderboard/data/{name}.csv`, with the settings of a board as parameters. Answers NOT_FOUND for a file
    or a board that does not exist, STORE_UNAVAILABLE while no controller answers."""

    @app.get(f"{csv_files.PATH}/{{name}}.csv")
    async def board_data(
        request: Request,
        name: str,
        board: str = "overall",
        style_control: bool = False,
        fit: FitModel = "bradley_terry",
        weighting: Weighting = "votes",
    ) -> Response:
        visitor = visitor_in(request.scope, request.client.host if request.client else "unknown")
        try:
            text = await _text(boards, visitor, name, BoardQuery(board, style_control, fit, weighting))
        except ControllerUnreachable as error:
            raise ApiError(ErrorCode.STORE_UNAVAILABLE, "The arena does not answer at the moment.") from error
        if text is None:
            raise ApiError(ErrorCode.NOT_FOUND, "There is no such file.", param="name")
        return Response(text, media_type="text/csv", headers={"Cache-Control": "no-cache"})


async def _text(boards: Boards, visitor: Visitor, name: str, query: BoardQuery) -> str | None:
    usual = await boards.leaderboard(visitor)
    if query.board not in (usual.board, *usual.boards):  # names that do not exist would fill the cache
        raise ApiError(ErrorCode.NOT_FOUND, "There is no such board.", param="board")
    if name == csv_files.HISTORY:
        days = await boards.history(visitor, query.board)
        return None if days is None else csv_files.of_history(days)
    if name not in csv_files.NAMES:
        return None
    return csv_files.of_board(name, await boards.leaderboard(visitor, query))
