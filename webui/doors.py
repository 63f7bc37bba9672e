"""Access rules of the web UI: which routes are open, how large a request may be, and what a page may load.

Gradio serves uploads, files, API calls by name, run history and more. No page here uses them, so every route is closed
except our own pages and the routes that Gradio's front end needs for them. Paths, query parameters and hosts that
Gradio would fail on are refused here, calls of its event routes in event_calls.py. The content policy keeps pages from
loading anything from another host, for instance a tracking image in a model's answer.
"""

import asyncio
import re

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service_kit.bodies import BODY_TIMEOUT_S
from service_kit.errors import ClientGone
from webui import texts
from webui.bare_page import bare_page
from webui.event_calls import SESSION_HASH, EventCalls
from webui.metrics import Metrics
from webui.ranking import csv_files
from wire.errors import ApiError, ErrorCode
from wire.ids import MAX_ID_CHARS

_PAGES = "|".join(re.escape(path.strip("/")) for path in (*texts.PAGES, texts.ABOUT_PATH) if path != "/")
_OPEN = re.compile(
    rf"/(({_PAGES})/?)?|/check|/join/[A-Za-z0-9._-]{{1,128}}|{csv_files.PATH}/({'|'.join(csv_files.NAMES)})\.csv"
    rf"|{texts.HISTORY_PATH}(/[A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}}(\.md|\.json|/(share|unshare|forget|feedback))?)?"
    rf"|{texts.SHARED_PATH}/[A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}}(\.md|\.json)?"
    r"|/(health|ready|alive|metrics|notices|terms|admin(/(desk|act|actions))?|config|theme\.css|favicon\.ico|robots\.txt)"
    r"|/(assets|static)(/[A-Za-z0-9_@][A-Za-z0-9_@.-]{0,127}){1,8}"
    rf"|/gradio_api/(queue/(join|data)|cancel|reset/?|startup-events|theme\.css|app_id|info)"
)
_STREAM = "/gradio_api/queue/data"
_PAGE_NAMES = {"", *(path.strip("/") for path in (*texts.PAGES, texts.ABOUT_PATH))}
_IS_SESSION_HASH = re.compile(SESSION_HASH)
_IS_HOST = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
#: What a stream says of a session that has no events, for instance one from before a restart: Gradio's page knows it.
_NO_SESSION = (
    'data: {"msg":"unexpected_error","event_id":null,"message":"","success":false,"session_not_found":true}\n\n'
)
MAX_BODY_BYTES = 512 * 1024
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
    """ASGI middleware around the whole app: applies the access rules and counts requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics, calls: EventCalls) -> None:
        self._app = app
        self._metrics = metrics
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        kind = "event" if path.startswith("/gradio_api/queue") else "page"
        bounded = _bounded(receive)

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                self._metrics.requests.labels(kind, str(message["status"])).inc()
            await send(message)

        if _OPEN.fullmatch(path) is None:
            if "text/html" in Headers(scope=scope).get("accept", ""):  # a person followed a link
                await HTMLResponse(bare_page(texts.NOT_FOUND), 404)(scope, receive, noted)
            else:
                await _answer(ApiError(ErrorCode.NOT_FOUND, "There is nothing here."), scope, receive, noted)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length[:20]) > MAX_BODY_BYTES:
            await _answer(_too_long(), scope, receive, noted)
            return
        limited: Receive = bounded
        try:
            _check_head(scope)
            if self._calls.is_call(scope["method"], path):
                limited = await self._calls.receive_checked(scope, receive)
        except ApiError as error:
            await _answer(error, scope, receive, noted)
            return
        except ClientGone:
            return
        is_stream = path == _STREAM and scope["method"] == "GET"
        if is_stream and not self._calls.is_open(_session_hash(scope)):
            await Response(_NO_SESSION, media_type="text/event-stream")(scope, receive, noted)
            return
        if is_stream:
            self._metrics.open_streams.inc()
        try:
            await self._app(scope, limited, noted)
        finally:
            if is_stream:
                self._metrics.open_streams.dec()


def _bounded(receive: Receive) -> Receive:
    """`receive` with limits for a request's body, for routes that read it themselves: raises ApiError REQUEST_TOO_LARGE
    (a body may come without a length) or INVALID_REQUEST for one that does not come in time, and ClientGone."""
    received, is_whole = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_S

    async def bounded() -> Message:
        nonlocal received, is_whole
        if is_whole:  # what comes then is the end of the connection
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The body did not arrive in time.") from None
        if message["type"] != "http.request":
            raise ClientGone
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise _too_long()
        is_whole = not message.get("more_body", False)
        return message

    return bounded


def _check_head(scope: Scope) -> None:
    """Raises ApiError for a page that does not exist, a session that cannot, and a host that is no name."""
    headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
    if query.get("page", "") not in _PAGE_NAMES:
        raise ApiError(ErrorCode.NOT_FOUND, "There is no such page.", param="page")
    if scope["path"] == _STREAM and _IS_SESSION_HASH.fullmatch(_session_hash(scope)) is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "This is no session.", param="session_hash")
    for name in ("host", "x-forwarded-host"):
        hosts = headers.get(name, "localhost").split(",")
        if any(_IS_HOST.fullmatch(host.strip()) is None for host in hosts):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"The header {name} has no name of a host.")


def _session_hash(scope: Scope) -> str:
    return QueryParams(scope["query_string"]).get("session_hash", "")


def _too_long() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TOO_LARGE, "That is too long.")


async def _answer(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse(error.body().model_dump(), error.status)(scope, receive, send)
