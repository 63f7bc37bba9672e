"""Where the page sends what a visitor says about a vote (block.py, assets/feedback.js)."""

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from webui import sentences, texts
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.visitors import visitor_in
from wire.errors import ApiError, ErrorCode
from wire.feedback import GiveFeedback
from wire.ids import BattleId
from wire.strict_json import parse_model

_MAX_BODY_BYTES = 16_000  #: a comment of emoji, with escapes, and some


def add_feedback_route(app: FastAPI, client: ControllerClient) -> None:
    """Add `POST /history/ID/feedback`. Its answer is for the script: a failure has the sentence to show, and its status
    says whether sending again may help (429 and 5xx)."""

    @app.post(f"{texts.HISTORY_PATH}/{{battle_id}}/feedback")
    async def give(request: Request, battle_id: str) -> Response:
        checked = BattleId.parse(battle_id)
        try:
            body = await request.body()
            if checked is None or len(body) > _MAX_BODY_BYTES:
                raise ApiError(ErrorCode.INVALID_REQUEST, "That is no feedback.")
            visitor = visitor_in(request.scope, request.client.host if request.client else "unknown")
            await client.give_feedback(checked, parse_model(GiveFeedback, body), visitor)
        except ApiError as error:
            return JSONResponse({"sentence": sentences.failure(error.code)}, error.status)
        except ControllerUnreachable:
            return JSONResponse({"sentence": texts.FEEDBACK_STATES["waiting"]}, 503)
        return JSONResponse({"sentence": texts.FEEDBACK_STATES["saved"]})
