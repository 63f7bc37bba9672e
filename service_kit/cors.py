"""Cross-origin requests (CORS): which pages of other origins may use /v1 in a browser. None, unless AGON_CORS_ORIGINS
names them. No other path is ever opened, and never a request with cookies: a page shows an API key or nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CORS_ORIGINS_HELP = (
    "Origins of web pages that may use /v1 in a browser, such as `https://app.example`, separated by commas; their "
    "requests must not carry cookies. `*`: every page, only where /v1 asks for an API key. Unset: none"
)
MAX_AGE_S = 600  #: a browser asks again after this time

#: Desktop clients and browser extensions have schemes of their own, such as app://obsidian.md.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]{1,31}://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_NAMES = re.compile(r"[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+)*")
_EXPOSED = (
    "x-request-id, x-agon-warning, retry-after, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests"
)


def _as_list(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _checked(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if origin != "*" and _ORIGIN.fullmatch(origin) is None:
            raise ValueError(f"{origin!r} is not an origin in lower case without a path, such as https://app.example")
    return origins


#: The type of the setting `cors_origins` of controller and worker.
CorsOrigins = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_as_list), AfterValidator(_checked)]


@dataclass(frozen=True)
class CrossOrigin:
    """The allow-list of one service. `origins` has `*` only where /v1 asks for a key."""

    origins: Sequence[str] = ()

    def admitted(self, headers: Headers, path: str) -> str | None:
        """The origin of the page that sent the request, if it may; null and repeated origins never may."""
        origins = headers.getlist("origin")
        if not self.origins or not path.startswith("/v1/") or len(origins) != 1 or "cookie" in headers:
            return None
        if _ORIGIN.fullmatch(origins[0]) is None or not ("*" in self.origins or origins[0] in self.origins):
            return None
        return origins[0]


class Cors:
    """ASGI middleware: answers preflights of admitted origins, and lets their pages read the answers of /v1. It stands
    inside OriginGuard, which has checked the host name."""

    def __init__(self, app: ASGIApp, cross_origin: CrossOrigin) -> None:
        self._app = app
        self._cross_origin = cross_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 204 to a preflight, or pass the request on."""
        if scope["type"] != "http" or not self._cross_origin.origins or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = self._cross_origin.admitted(headers, scope["path"])
        if origin is not None and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(origin, headers)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(raw=list(message.get("headers", ())))
                answered.add_vary_header("Origin")  # also for others: a cache must not give them this answer
                if origin is not None:
                    answered["Access-Control-Allow-Origin"] = origin
                    answered["Access-Control-Expose-Headers"] = _EXPOSED
                message = {**message, "headers": answered.raw}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _preflight(origin: str, asked: Headers) -> Response:
    headers = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Max-Age": str(MAX_AGE_S),
        "Vary": "Origin, Access-Control-Request-Headers",
    }
    # Client libraries send many headers of their own, none of which has an effect here.
    names = asked.get("access-control-request-headers", "")
    if len(names) <= 2000 and _NAMES.fullmatch(names):
        headers["Access-Control-Allow-Headers"] = names
    return Response(status_code=204, headers=headers)
