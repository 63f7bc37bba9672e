"""Requests of a page that reach another web UI than the one that keeps the page's events.

Gradio keeps the events of a page in the process that takes them, and a vote that can still be taken back waits there,
too. Behind a proxy without sticky sessions the requests of a page come to any web UI of the arena. So a page names in
SERVER_HEADER the process that served it (assets/connection.js), and a web UI that is not meant passes the request on.
Where the process that is meant is gone, `/alive` is answered by the one that was asked, and the page moves to it as
after a restart; its other requests are refused with GONE until it has moved.
"""

import asyncio
import hmac
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import httpx
from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from service_kit.bodies import Bodies
from service_kit.errors import ClientGone, error_response
from service_kit.request_ids import forwarded_id
from webui.limits import DATA, JOIN
from webui.metrics import Metrics
from webui.visitors import SIGNED_IN, came_over_tls
from wire.errors import ApiError
from wire.proxies import PROXY_TOKEN_HEADER, USER_HEADERS

SERVER_HEADER: Final = "X-Agon-Server"
ALIVE: Final = "/alive"
GONE: Final = 502  #: a page knows by SERVER_HEADER in the answer that no proxy has said so
LOOK_EVERY_S: Final = 1.0  #: between two searches for a process that no web UI is known to be

_PASSED_ON: Final = frozenset((ALIVE, DATA, JOIN, *(f"/gradio_api/{name}" for name in ("cancel", "reset", "reset/"))))
#: Headers of one connection (RFC 9110, 7.6.1), or said anew by this web UI.
_NOT_PASSED_ON: Final = frozenset(
    (
        *("connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-request-id", PROXY_TOKEN_HEADER.lower()),
        *(name.lower() for name in USER_HEADERS),
    )
)
#: A process that answers nothing for so long is taken for dead; a stream says something every three seconds. A search
#: and a question after it take less time than a page waits for `/alive`.
_TIMEOUT: Final = httpx.Timeout(2.0, connect=1.0)
_STREAM_TIMEOUT: Final = httpx.Timeout(2.0, connect=1.0, read=10.0)
_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=20)


class Peers:
    """The web UIs of the arena by the ids of their processes. `own_id` is drawn at every start. Owns one connection
    pool; close it with `aclose`. `urls` are asked for their ids, of names in http URLs all addresses."""

    def __init__(
        self, urls: tuple[str, ...], proxy_token: str, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.own_id = secrets.token_hex(8)
        self._urls = urls
        self._token = proxy_token
        self._by_id: dict[str, str] = {}
        self._looked_at = -LOOK_EVERY_S
        self._looking: asyncio.Task[None] | None = None
        self._client: httpx.AsyncClient | None = None
        if urls:
            self._client = httpx.AsyncClient(timeout=_TIMEOUT, limits=_LIMITS, transport=transport, trust_env=False)

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    def shows_token(self, headers: Headers) -> bool:
        """Whether a request comes from another web UI of the arena."""
        shown = headers.get(PROXY_TOKEN_HEADER, "")
        return bool(self._token) and hmac.compare_digest(shown.encode(), self._token.encode())

    async def url_of(self, server: str) -> str | None:
        """The address of the process with this id; None if no web UI is it. Searches at most every LOOK_EVERY_S, and a
        caller that comes sooner waits: ids can be invented."""
        while self._urls and server not in self._by_id:
            if self._looking is None:
                is_last = True
                self._looking = asyncio.create_task(self._look())
            else:
                is_last = False
            await asyncio.shield(self._looking)
            if is_last:
                break
        return self._by_id.get(server)

    def forget(self, server: str) -> None:
        """The process with this id does not answer."""
        self._by_id.pop(server, None)

    async def send(self, url: str, scope: Scope, body: bytes) -> httpx.Response:
        """Pass a request on to the web UI at `url`, which `url_of` has given; its answer has a body to be streamed.
        Raises httpx.TransportError where there is none."""
        assert self._client is not None
        query = scope["query_string"].decode("latin-1")
        request = self._client.build_request(
            scope["method"],
            f"{url}{scope['path']}" + (f"?{query}" if query else ""),
            headers=self._headers(scope),
            content=body if scope["method"] != "GET" else None,
            timeout=_STREAM_TIMEOUT if scope["path"] == DATA else _TIMEOUT,
        )
        return await self._client.send(request, stream=True)

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        kept: list[tuple[bytes, bytes]] = [pair for pair in scope["headers"] if pair[0].decode() not in _NOT_PASSED_ON]
        told = {
            "X-Forwarded-For": scope["client"][0] if scope.get("client") else "unknown",
            "X-Forwarded-Proto": "https" if came_over_tls(scope) else "http",
            PROXY_TOKEN_HEADER: self._token,
            **({USER_HEADERS[0]: scope[SIGNED_IN]} if scope.get(SIGNED_IN) else {}),
            **forwarded_id(),
        }
        return [*kept, *((name.encode(), value.encode()) for name, value in told.items())]

    async def _look(self) -> None:
        try:
            await asyncio.sleep(self._looked_at + LOOK_EVERY_S - time.monotonic())
            found = [await _addresses(url) for url in self._urls]
            urls = dict.fromkeys(address for addresses in found for address in addresses)
            ids = await asyncio.gather(*(self._id_of(url) for url in urls))
            self._by_id = {known: url for known, url in zip(ids, urls, strict=True) if known is not None}
        finally:
            self._looked_at = time.monotonic()
            self._looking = None

    async def _id_of(self, url: str) -> str | None:
        assert self._client is not None
        try:
            answer = await self._client.get(url + ALIVE, headers={PROXY_TOKEN_HEADER: self._token, "Host": "localhost"})
            server = answer.json()["server"]
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None
        return server if isinstance(server, str) else None


class ToPeers:
    """ASGI middleware outside of everything that counts events or knows visitors."""

    def __init__(self, app: ASGIApp, peers: Peers, metrics: Metrics, max_body_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._peers = peers
        self._bodies = Bodies(max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for this process, and pass on one for another."""
        if scope["type"] != "http" or scope["path"] not in _PASSED_ON:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        wanted = headers.get(SERVER_HEADER, self._peers.own_id)
        if self._peers.shows_token(headers):
            await self._app(_as_told(scope, headers), receive, send)
        elif wanted == self._peers.own_id:
            await self._app(scope, receive, send)
        else:
            await self._pass_on(wanted, scope, receive, send)

    async def _pass_on(self, wanted: str, scope: Scope, receive: Receive, send: Send) -> None:
        url = await self._peers.url_of(wanted)
        answer = Response(status_code=GONE, headers={SERVER_HEADER: self._peers.own_id})
        if url is not None:
            try:
                body = await self._bodies.read(Request(scope, receive)) if scope["method"] != "GET" else b""
                response = await self._peers.send(url, scope, body)
                answer = _streamed(response) if scope["path"] == DATA else await _whole(response)
            except httpx.TransportError:
                self._peers.forget(wanted)
            except ApiError as error:
                answer = error_response(error)
            except ClientGone:
                return
        is_gone = SERVER_HEADER in answer.headers
        self._metrics.passed_on.labels("gone" if is_gone else "answered").inc()
        if is_gone and scope["path"] == ALIVE:
            await self._app(scope, receive, send)
        else:
            await answer(scope, receive, send)


def _as_told(scope: Scope, headers: Headers) -> Scope:
    """The scope as it was at the web UI that has passed the request on."""
    told = dict(scope)
    address = headers.get("x-forwarded-for", "").strip()
    if address:
        told["client"] = (address, 0)
        told["scheme"] = headers.get("x-forwarded-proto", scope["scheme"])
        told[SIGNED_IN] = headers.get(USER_HEADERS[0])
    return told


def _streamed(response: httpx.Response) -> Response:
    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            with suppress(httpx.TransportError):  # the page notices by itself that its stream has not come to its end
                async for piece in response.aiter_raw():
                    yield piece
        finally:
            await response.aclose()

    answer = StreamingResponse(pieces(), response.status_code)
    answer.raw_headers = _passed_back(response)
    return answer


async def _whole(response: httpx.Response) -> Response:
    """Raises httpx.TransportError where the body breaks off."""
    try:
        body = b"".join([piece async for piece in response.aiter_raw()])
    finally:
        await response.aclose()
    answer = Response(body, response.status_code)
    answer.raw_headers = [*_passed_back(response), (b"content-length", b"%d" % len(body))]
    return answer


def _passed_back(response: httpx.Response) -> list[tuple[bytes, bytes]]:
    pairs = ((name.lower(), value) for name, value in response.headers.raw)
    return [pair for pair in pairs if pair[0].decode() not in _NOT_PASSED_ON and pair[0] != b"date"]


async def _addresses(url: str) -> list[str]:
    """The URLs of all addresses of a name; https URLs as they are, because a certificate has a name."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        return [url.rstrip("/")]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except OSError:
        return []
    hosts = dict.fromkeys(str(address[0]) for *_, address in found)
    return [f"http://{f'[{host}]' if ':' in host else host}:{parts.port or 80}" for host in hosts]
