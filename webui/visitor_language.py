"""The middleware that answers each request in its visitor's language, and says so to caches and screen readers."""

from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui.languages import COOKIE, negotiated, speaking

_KEY: Final = "agon.language"
#: What is written for people; other answers are the same in all languages.
_SPOKEN: Final = ("text/html", "text/markdown", "application/json")


class VisitorLanguage:
    """ASGI middleware around the whole app. `default`: for browsers that like none of our languages."""

    def __init__(self, app: ASGIApp, default: str) -> None:
        self._app = app
        self._default = default

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Choose the language, note it in the scope for the events of pages, and answer in it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        accepted = connection.headers.get("accept-language", "")
        language = scope[_KEY] = negotiated(connection.cookies.get(COOKIE), accepted, self._default)

        async def labelled(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_spoken(message):
                headers = MutableHeaders(scope=message)
                headers["Content-Language"] = language
                headers.add_vary_header("Cookie, Accept-Language")
            await send(message)

        with speaking(language):
            await self._app(scope, receive, labelled)


def language_in(scope: Any, default: str) -> str:
    """The language of the visitor whose request has this scope; `default` for one that came another way."""
    language: str = scope.get(_KEY, default)
    return language


def _is_spoken(start: Message) -> bool:
    content_type = Headers(raw=start["headers"]).get("content-type", "")
    return start["status"] == 304 or content_type.startswith(_SPOKEN)
