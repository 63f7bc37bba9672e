"""Who uses a page: the address, and the signed cookie by which the arena knows a voter again.

The middleware here gives a browser its cookie with a page, or with the first event of a page that was open before. An
event that is sent without a cookie is answered all the same: the controller knows its visitor by the address, and hears
which cookie the browser gets. Without a proxy token there are no cookies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui import texts
from webui.limits import JOIN
from wire.proxies import USER_HEADERS
from wire.voters import NEW_COOKIE_HEADER, VoterCookies

if TYPE_CHECKING:
    import gradio as gr

CHECK_PATH = "/check"
NOTICES_PATH = "/notices"
TERMS_PATH = "/terms"
_PAGES = frozenset((*texts.PAGES, texts.ABOUT_PATH))
_ASKED_BY_SCRIPT = frozenset((NOTICES_PATH, TERMS_PATH))
_SHOWN, _NEW = "agon.voter_cookie", "agon.new_voter_cookie"  #: keys of a request's scope
SIGNED_IN = "agon.signed_in"  #: key of the name that a trusted proxy gives a visitor (believed_proxies.py)


@dataclass(frozen=True, slots=True)
class Visitor:
    """On whose behalf the controller is asked. `cookie`: the whole cookie that the browser has shown, `new_cookie` the
    text of the one that it gets with the answer. `user`: the name that a trusted proxy gives the visitor."""

    address: str
    cookie: str | None = None
    new_cookie: str | None = None
    user: str | None = None

    def headers(self) -> dict[str, str]:
        """Headers that tell a controller."""
        headers = {"X-Forwarded-For": self.address}
        if self.cookie is not None:
            headers["Cookie"] = self.cookie
        if self.new_cookie is not None:
            headers[NEW_COOKIE_HEADER] = self.new_cookie
        if self.user is not None:
            headers[USER_HEADERS[0]] = self.user
        return headers


def visitor_in(scope: Scope, address: str) -> Visitor:
    """The visitor at this address whose request has this scope."""
    return Visitor(address, scope.get(_SHOWN), scope.get(_NEW), scope.get(SIGNED_IN))


def visitor_of(request: gr.Request) -> Visitor:
    """The visitor who sent this event."""
    scope = {} if request.request is None else request.request.scope
    return visitor_in(scope, request.client.host if request.client else "unknown")


class VisitorCookies:
    """ASGI middleware around Gradio: notes in the scope which cookie a visitor shows and which one they get.

    `gives_new`: whether a visitor without a cookie gets one; otherwise only cookies of invitations are renewed.
    `checks`: whether a captcha stands before the pages; then it gives new cookies."""

    def __init__(self, app: ASGIApp, cookies: VoterCookies, *, gives_new: bool, checks: bool = False) -> None:
        self._app = app
        self._cookies = cookies
        self._gives_new = gives_new and not checks
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set a cookie where a browser has none of this arena, or one that is old."""
        if scope["type"] != "http" or not _is_visit(scope):
            await self._app(scope, receive, send)
            return
        shown = HTTPConnection(scope).cookies.get(self._cookies.name)
        known = self._cookies.read(shown)
        is_page = scope["method"] == "GET" and scope["path"] not in _ASKED_BY_SCRIPT
        if self._checks and is_page and (known is None or not known.opens):
            await RedirectResponse(CHECK_PATH, 303, headers={"Cache-Control": "no-store"})(scope, receive, send)
            return
        given: str | None = None
        if known is None and self._gives_new:
            given = scope[_NEW] = self._cookies.new()
        elif known is not None:
            scope[_SHOWN] = f"{self._cookies.name}={shown}"
            is_renewed = known.is_old and not (self._checks and known.kind == "c")
            given = self._cookies.text(known.kind, known.voter_id) if is_renewed else None
        is_secure = came_over_tls(scope)

        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and given is not None:
                headers = MutableHeaders(scope=message)
                headers.append("Set-Cookie", self._cookies.set_cookie(given, is_secure=is_secure))
                headers["Cache-Control"] = "private, no-cache"  # another visitor must not get it from a shared cache
            await send(message)

        await self._app(scope, receive, with_cookie)


def came_over_tls(scope: Scope) -> bool:
    """Whether the browser uses TLS, as far as it or its proxy says; a lie harms the browser alone."""
    return scope["scheme"] == "https" or Headers(scope=scope).get("x-forwarded-proto") == "https"


def _is_visit(scope: Scope) -> bool:
    """Whether a page is loaded, or one of its events or questions sent."""
    path = scope["path"]
    is_of_history = path.split("/")[1] == texts.HISTORY_PATH.strip("/")  # pages and forms of the visitor's own battles
    if is_of_history or path in _ASKED_BY_SCRIPT:
        return True
    return (scope["method"] == "GET" and ("/" + path.strip("/")) in _PAGES) or (
        scope["method"] == "POST" and path == JOIN
    )
