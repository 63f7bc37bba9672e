"""Which of Gradio's routes are open, how large a request may be, and what a page may load.

Gradio serves uploads, files, API calls by name, run history and more. No page here uses them, so everything under its
API prefix is shut except what its own front end needs. The content policy keeps a page from loading anything from
another host, for instance an image that a model put into its answer to see who reads it.
"""

import re

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui.metrics import Metrics
from wire.errors import ApiError, ErrorCode

_OPEN = re.compile(
    r"/gradio_api/(queue/(join|data)|cancel|reset/?|heartbeat/[^/]+|startup-events|theme\.css|app_id|info)"
)
_SHUT = re.compile(
    r"/(monitoring|login|logout|login_check|token|user|svelte|custom_component|manifest\.json|pwa_icon)(/.*)?"
)
_MAX_BODY_BYTES = 512 * 1024
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",  # Gradio's page has inline scripts and compiles handlers
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Doors:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        kind = "event" if path.startswith("/gradio_api/queue") else "page"
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > _MAX_BODY_BYTES:
                raise _TooLarge
            return message

        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                self._metrics.requests.labels(kind, str(message["status"])).inc()
            await send(message)

        if _is_shut(path):
            await _answer(ApiError(ErrorCode.NOT_FOUND, "There is nothing here."), scope, receive, noted)
            return
        is_stream = path == "/gradio_api/queue/data"
        if is_stream:
            self._metrics.open_streams.inc()
        try:
            await self._app(scope, limited, noted)
        except _TooLarge:
            if started:
                raise
            await _answer(ApiError(ErrorCode.REQUEST_TOO_LARGE, "That is too long."), scope, receive, noted)
        finally:
            if is_stream:
                self._metrics.open_streams.dec()


class _TooLarge(Exception):
    """The request's body is longer than any page of ours sends."""


def _is_shut(path: str) -> bool:
    if path.startswith("/gradio_api"):
        return _OPEN.fullmatch(path) is None
    return _SHUT.fullmatch(path) is not None


async def _answer(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse(error.body().model_dump(), error.status)(scope, receive, send)
