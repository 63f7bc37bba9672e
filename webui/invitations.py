"""`/join/TOKEN`: the link of an invitation. It gives the browser the cookie of the invited voter."""

from html import escape

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from webui import sentences, texts
from webui.bare_page import bare_page
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.visitors import Visitor, came_over_tls
from wire.errors import ApiError, ErrorCode
from wire.voters import VoterCookies


def add_join_page(app: FastAPI, client: ControllerClient, cookies: VoterCookies | None) -> None:
    """Add the page. Without `cookies`, that is without a proxy token, no invitation can be taken."""

    @app.get("/join/{token}")
    async def join(request: Request, token: str) -> Response:
        invited = None if cookies is None else cookies.read(token)
        if cookies is None or invited is None or invited.kind != "i":
            return _page(texts.FAILURES[ErrorCode.INVITATION_NOT_FOUND], 404)
        try:
            await client.join(token, Visitor(request.client.host if request.client else "unknown"))
        except ApiError as error:
            return _page(sentences.failure(error.code), error.status)
        except ControllerUnreachable:
            return _page(texts.UNREACHABLE, 503)
        answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
        text = cookies.text("i", invited.voter_id)
        answer.headers["Set-Cookie"] = cookies.set_cookie(text, is_secure=came_over_tls(request.scope))
        return answer


def _page(sentence: str, status: int) -> Response:
    return HTMLResponse(bare_page(escape(sentence)), status)
