"""`/notices` and `/terms`: what the operator tells visitors, for the script of every page (assets/notices.js).

The notices and the text of the terms are asked for once for all visitors; only whether a visitor has accepted the terms
is asked for each of them, and only where there are terms.
"""

from contextlib import suppress
from html import escape
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from webui import texts
from webui.bare_page import bare_page
from webui.boards import Shared
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.visitors import NOTICES_PATH, TERMS_PATH, Visitor, visitor_in
from wire.errors import ApiError, ErrorCode
from wire.notices import AcceptTerms, NoticeList, TermsView
from wire.strict_json import parse_model

_MAX_BODY_BYTES = 1000
_NEVER_STORED = {"Cache-Control": "no-store"}
#: A page asks again two seconds after a refusal and must get the terms that caused it (assets/notices.js).
_MAX_AGE_S = 1.0


def add_notice_routes(app: FastAPI, client: ControllerClient, *, max_age_s: float) -> None:
    """Add `GET /notices`, `GET /terms` and `POST /terms`. `max_age_s`: seconds between two questions to the
    controller, at most _MAX_AGE_S."""
    max_age_s = min(max_age_s, _MAX_AGE_S)
    notices: Shared[NoticeList] = Shared(client.notices, max_age_s)
    terms: Shared[TermsView] = Shared(client.terms, max_age_s)

    @app.get(NOTICES_PATH)
    async def show(request: Request) -> Response:
        """Without a controller, or with one that knows no notices, there are none: the page says by itself that the
        arena is away."""
        visitor, unaccepted = _visitor(request), None
        try:
            shown = await notices.get(visitor)
            with suppress(ApiError):  # a visitor who may not begin battles
                unaccepted = await _unaccepted(client, terms, visitor)
        except (ApiError, ControllerUnreachable):
            return JSONResponse({}, headers=_NEVER_STORED)
        content: dict[str, Any] = {
            "notices": [notice.model_dump(include={"id", "text", "severity"}) for notice in shown.notices],
            "words": {**texts.NOTICE_WORDS, "title": texts.TERMS_TITLE},
            "terms": None if unaccepted is None else {"version": unaccepted.version, "text": unaccepted.text},
        }
        return JSONResponse(content, headers=_NEVER_STORED)

    @app.get(TERMS_PATH)
    async def read(request: Request) -> Response:
        try:
            found = await terms.get(_visitor(request))
        except (ApiError, ControllerUnreachable):
            return HTMLResponse(bare_page(escape(texts.UNREACHABLE)), 503)
        if found.version is None:
            return HTMLResponse(bare_page(escape(texts.NO_TERMS)), 404)
        paragraphs = "</p><p>".join(escape(part) for part in found.text.split("\n\n") if part.strip())
        return HTMLResponse(bare_page(paragraphs, texts.TERMS_TITLE), headers=_NEVER_STORED)

    @app.post(TERMS_PATH)
    async def accept(request: Request) -> Response:
        wanted = parse_model(AcceptTerms, (await request.body())[:_MAX_BODY_BYTES])
        try:
            await client.accept_terms(wanted.version, _visitor(request))
        except ControllerUnreachable as error:
            raise ApiError(ErrorCode.STORE_UNAVAILABLE, "The arena does not answer at the moment.") from error
        return JSONResponse({"status": "accepted"}, headers=_NEVER_STORED)


async def _unaccepted(client: ControllerClient, terms: Shared[TermsView], visitor: Visitor) -> TermsView | None:
    """The terms that this visitor has not accepted yet."""
    if (await terms.get(visitor)).version is None:
        return None
    own = await client.terms(visitor)
    return None if own.is_accepted else own


def _visitor(request: Request) -> Visitor:
    return visitor_in(request.scope, request.client.host if request.client else "unknown")
