"""`/admin`: the operator's page. It shows what is in force and sends what its forms ask for.

The browser keeps the admin token while the tab is open and sends it with each request; this service keeps it nowhere
and hands it on to the controller, which decides. A user named by the proxy needs none. The page
is markup and a small script, without Gradio: it works while Gradio's queue is full.
"""

import asyncio
import time
from html import escape
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from webui import texts
from webui.admin import words
from webui.admin.actions import Act, request_of
from webui.admin.desk import Desk, render
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.styles import ADMIN, style_sheet
from webui.theme import ASSETS, head
from webui.visitors import Visitor, visitor_in
from webui.widgets import header_markup
from wire.admin import ActionList, AdminView, AdminVotes, FailuresView
from wire.errors import ApiError, ErrorCode
from wire.model_cards import BoardCards
from wire.served_models import AdminServed
from wire.strict_json import parse_model

PATH = "/admin"
VOTES_A_PAGE = 25
#: Gradio's pages choose the theme by themselves.
_THEME = (
    'let name = null; try { name = localStorage.getItem("agon-theme"); } catch {} '
    'const isDark = name ? name === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; '
    'document.body.classList.toggle("dark", isDark);'
)
_NEVER_STORED = {"Cache-Control": "no-store"}


def add_admin_page(app: FastAPI, client: ControllerClient, server: str) -> None:
    """Add the page and the requests of its script. `server`: the id of this process."""
    page = _page(server)

    @app.get(PATH)
    async def show() -> Response:
        return HTMLResponse(page, headers=_NEVER_STORED)

    @app.get(f"{PATH}/desk")
    async def desk(
        request: Request, before: Annotated[str, Query(pattern=r"^([0-9]{1,18}-[0-9]{1,18})?$")] = ""
    ) -> Response:
        return await _desk(client, request, before)

    @app.post(f"{PATH}/act")
    async def act(request: Request) -> Response:
        wanted = request_of(parse_model(Act, await request.body()))
        try:
            await client.as_admin(wanted.method, wanted.path, _visitor(request), _token(request), wanted.body)
        except ControllerUnreachable as error:
            raise _away() from error
        return JSONResponse({"status": "done"}, headers=_NEVER_STORED)

    @app.get(f"{PATH}/actions")
    async def export(request: Request) -> Response:
        try:
            found = await client.admin_text("/arena/admin/actions/export", _visitor(request), _token(request))
        except ControllerUnreachable as error:
            raise _away() from error
        return Response(found, media_type="application/x-ndjson", headers=_NEVER_STORED)


async def _desk(client: ControllerClient, request: Request, before: str) -> Response:
    visitor, token = _visitor(request), _token(request)
    votes = f"/arena/admin/votes?count={VOTES_A_PAGE}" + (f"&before={before}" if before else "")
    paths = (
        "/arena/admin",
        votes,
        "/arena/admin/failures",
        "/arena/admin/actions?count=50",
        "/arena/models",
        "/arena/admin/served",
    )
    try:
        first = await client.as_admin("GET", paths[0], visitor, token)
        others = await asyncio.gather(*(client.as_admin("GET", path, visitor, token) for path in paths[1:]))
    except ControllerUnreachable as error:
        raise _away() from error
    shown = Desk(
        view=AdminView.model_validate(first),
        votes=AdminVotes.model_validate(others[0]),
        failures=FailuresView.model_validate(others[1]),
        actions=ActionList.model_validate(others[2]),
        cards=BoardCards.model_validate(others[3]),
        served=AdminServed.model_validate(others[4]),
        now=time.time(),
        is_first_page=not before,
    )
    return HTMLResponse(render(shown), headers=_NEVER_STORED)


def _visitor(request: Request) -> Visitor:
    return visitor_in(request.scope, request.client.host if request.client else "unknown")


def _token(request: Request) -> str:
    """The token of the request; "" where it shows none, or one that no header can carry."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.isascii() and token.isprintable() else ""


def _away() -> ApiError:
    return ApiError(ErrorCode.STORE_UNAVAILABLE, words.UNREACHABLE)


def _page(server: str) -> str:
    """The page before the administrator has signed in, with the head that all pages share. It is in English."""
    script = (ASSETS / "admin.js").read_text(encoding="utf-8")
    header = header_markup(PATH, has_languages=False)
    sentences = {"wrong": words.WRONG_TOKEN, "away": words.UNREACHABLE, "done": words.DONE}
    data = "".join(f' data-{name}="{escape(sentence)}"' for name, sentence in sentences.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'{head(server)}<meta name="robots" content="noindex">'
        f"<title>{words.TITLE} - {texts.BRAND}</title><style>{style_sheet(ADMIN)}</style></head>"
        f'<body><script>{_THEME}</script><div class="agon-admin-page"><div id="agon-top">{header}</div>'
        f'<main id="agon-admin"{data}><h1>{words.TITLE}</h1><p class="agon-admin-help">{words.LEAD}</p>'
        f'<p id="said" role="status"></p>'
        f'<form id="sign-in" hidden><label>{words.TOKEN}<input id="token" type="password" maxlength="512" '
        f'autocomplete="current-password" aria-describedby="token-help" required></label>'
        f'<button>{words.SIGN_IN}</button><p id="token-help" class="agon-admin-help">{escape(words.TOKEN_HELP)}</p>'
        f'</form><div id="desk" class="agon-admin-desk"></div></main></div><script>{script}</script></body></html>'
    )
