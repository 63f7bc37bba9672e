"""The header X-Request-Id: every answer has one, so that a client can name a request. A valid one that the client sent
comes back. Services pass it on in the requests that they make for it, and their log lines have it (logs.py), so that
one word finds a request in the logs of all processes. Other headers that a route notes get into the same head.
"""

import re
import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service_kit.request_context import begin_serving, current_request_id

HEADER = "x-request-id"
_NOTED = "noted_headers"
_VALID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestIds:
    """ASGI middleware around the whole app. Code inside finds the id by `request_id_of`, and adds to the head of the
    answer by `note_headers`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and put the id into the head of its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _VALID.fullmatch(given) else secrets.token_hex(16)
        noted: dict[bytes, bytes] = {HEADER.encode(): request_id.encode()}
        scope.setdefault("state", {}).update({HEADER: request_id, _NOTED: noted})
        begin_serving(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *noted.items()]}
            await send(message)

        await self._app(scope, receive, send_with_id)


def note_headers(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Give the answer to the request of `scope` these headers, a refusal or a stream included, if its head has not been
    sent."""
    scope.setdefault("state", {}).setdefault(_NOTED, {}).update(headers)


def request_id_of(scope: Scope) -> str | None:
    """The id of the request; None outside of the middleware."""
    found = scope.get("state", {}).get(HEADER)
    return found if isinstance(found, str) else None


def forwarded_id() -> dict[str, str]:
    """The header for a request that is made now for another one; empty where there is none."""
    request_id = current_request_id()
    return {} if request_id is None else {HEADER: request_id}
