"""Access rules of the web UI: which routes are open, how large a request may be, and what a page may load.

Gradio serves uploads, files, API calls by name, run history and more. No page here uses them, so every route is closed
except our own pages and the routes that Gradio's front end needs for them. The content policy keeps pages from loading
anything from another host, for instance a tracking image in a model's answer.
"""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui import texts
from webui.metrics import Metrics
from wire.errors import ApiError, ErrorCode

_PAGES = "|".join(re.escape(path.strip("/")) for path in (*dict(texts.PAGES), texts.ABOUT_PATH) if path != "/")
_OPEN = re.compile(
    rf"/(({_PAGES})/?)?|/(health|ready|metrics|config|theme\.css|favicon\.ico|robots\.txt)|/(assets|static)/.+"
    r"|/gradio_api/(queue/(join|data)|cancel|reset/?|heartbeat/[^/]+|startup-events|theme\.css|app_id|info)"
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
_NOTHING = (
    '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><meta name="color-scheme" '
    f'content="light dark"><title>{texts.BRAND}</title><body style="font:18px system-ui;margin:15vh auto;'
    f'max-width:32em;padding:0 16px"><p>{texts.NOT_FOUND}</p><p><a href="/">{texts.TO_BATTLE}</a></p>'
)


class Doors:
    """ASGI middleware around the whole app: applies the access rules and counts requests."""

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
            if received > _MAX_BODY_BYTES:  # a body without Content-Length
                return {"type": "http.disconnect"}
            return message

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                self._metrics.requests.labels(kind, str(message["status"])).inc()
            await send(message)

        if _OPEN.fullmatch(path) is None:
            if "text/html" in Headers(scope=scope).get("accept", ""):  # a person followed a link
                await HTMLResponse(_NOTHING, 404)(scope, receive, noted)
            else:
                await _answer(ApiError(ErrorCode.NOT_FOUND, "There is nothing here."), scope, receive, noted)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and int(length) > _MAX_BODY_BYTES:
            await _answer(ApiError(ErrorCode.REQUEST_TOO_LARGE, "That is too long."), scope, receive, noted)
            return
        is_stream = path == "/gradio_api/queue/data"
        if is_stream:
            self._metrics.open_streams.inc()
        try:
            await self._app(scope, limited, noted)
        finally:
            if is_stream:
                self._metrics.open_streams.dec()


async def _answer(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse(error.body().model_dump(), error.status)(scope, receive, send)
