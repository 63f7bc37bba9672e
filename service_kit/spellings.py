"""One spelling of each request: `/v1//models/` is `/v1/models`, and HEAD of a path that clients probe is GET without
the body. Clients join base addresses and paths as they like."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SLASHES = re.compile("/{2,}")
_PROBED = re.compile(r"/v1/models(/.+)?|/health|/ready|/version")  #: none of them answers with a stream


def plain_path(path: str) -> str:
    """The path without repeated slashes and, under /v1, without one at its end."""
    path = _SLASHES.sub("/", path)
    return path.rstrip("/") if path.startswith("/v1/") else path


class Spellings:
    """ASGI middleware, outside of all that reads paths but PathPrefix."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its plain path."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": plain_path(scope["path"])}
        if scope["method"] != "HEAD" or _PROBED.fullmatch(scope["path"]) is None:
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, send_head)
