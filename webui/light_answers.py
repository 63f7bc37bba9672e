"""Pages and files that travel light: compressed once, kept by browsers, and not sent again while they are the same.

Gradio compresses its files anew for every request, its pages never, and does not say how long a file may be kept,
although most names bear a digest of what is in the file.
"""

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import brotli
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: A name under /assets/ has a digest in it, and the address of the theme one in its query.
_FOREVER: Final = "public, max-age=31536000, immutable"
_A_DAY: Final = "public, max-age=86400"
_ASK_AGAIN: Final = "no-cache"
_COMPRESSIBLE: Final = ("text/", "application/javascript", "application/json", "image/svg+xml")
_LEAST_BYTES: Final = 256  #: what is shorter fits into one packet as it is
_MAX_KEPT_BYTES: Final = 32 << 20  #: of compressed answers; all that our pages load takes 0.5 MB
_BROTLI_QUALITY: Final = 6


class LightAnswers:
    """ASGI middleware around Gradio's pages and files. Other answers pass as they are, as do those that must not be
    stored."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept = _Kept()

    @property
    def num_kept_bytes(self) -> int:
        """Compressed bytes that are kept."""
        return self._kept.num_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET of a page or a file with what is kept of it, or keep what the app answers."""
        if scope["type"] != "http" or scope["method"] != "GET" or _is_call(scope["path"]) or _has_range(scope):
            await self._app(scope, receive, send)
            return
        wanted = Headers(scope=scope)
        plain = {b"accept-encoding", b"if-none-match", b"if-modified-since"}
        inner = {**scope, "headers": [(name, value) for name, value in scope["headers"] if name not in plain]}
        start: Message | None = None
        body = bytearray()

        async def light(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_worth_it(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    await self._send(scope, wanted, start, bytes(body), send)

        await self._app(inner, receive, light)

    async def _send(self, scope: Scope, wanted: Headers, start: Message, body: bytes, send: Send) -> None:
        digest = hashlib.sha256(body).hexdigest()[:32]
        encoding = _best_of(wanted.get("accept-encoding", "")) if len(body) >= _LEAST_BYTES else ""
        headers = MutableHeaders(scope=start)
        headers["ETag"] = etag = f'W/"{digest}"'
        headers["Cache-Control"] = headers.get("Cache-Control") or _lifetime(scope)
        headers.add_vary_header("Accept-Encoding")
        for name in ("Last-Modified", "Accept-Ranges"):
            if name in headers:
                del headers[name]
        if etag in (known.strip() for known in wanted.get("if-none-match", "").split(",")):
            start["status"] = 304
            for name in ("Content-Length", "Content-Type"):
                if name in headers:
                    del headers[name]
            body = b""
        else:
            if encoding:
                body = await self._kept.compressed(digest, encoding, body)
                headers["Content-Encoding"] = encoding
            headers["Content-Length"] = str(len(body))
        await send(start)
        await send({"type": "http.response.body", "body": body})


@dataclass
class _Kept:
    """Compressed bodies by digest and encoding; those that were not asked for longest go first."""

    num_bytes: int = 0
    _bodies: OrderedDict[tuple[str, str], bytes] = field(default_factory=OrderedDict)

    async def compressed(self, digest: str, encoding: str, body: bytes) -> bytes:
        key = digest, encoding
        if key not in self._bodies:
            small = await asyncio.to_thread(_compress, encoding, body)
            if key not in self._bodies:  # another request may have been faster
                self._bodies[key] = small
                self.num_bytes += len(small)
        found = self._bodies[key]
        self._bodies.move_to_end(key)
        while self.num_bytes > _MAX_KEPT_BYTES and len(self._bodies) > 1:
            self.num_bytes -= len(self._bodies.popitem(last=False)[1])
        return found


def _compress(encoding: str, body: bytes) -> bytes:
    if encoding == "br":
        return bytes(brotli.compress(body, quality=_BROTLI_QUALITY))
    return gzip.compress(body, mtime=0)


def _best_of(accepted: str) -> str:
    """The encoding to use for an Accept-Encoding header; "" for none."""
    offers = {}
    for part in accepted.lower().split(","):
        name, _, quality = part.partition(";")
        offers[name.strip()] = quality.replace(" ", "")
    return next((name for name in ("br", "gzip") if name in offers and not _is_zero(offers[name])), "")


def _is_zero(quality: str) -> bool:
    return quality.startswith("q=0") and not quality.strip("q=0.")


def _is_call(path: str) -> bool:
    return path.startswith("/gradio_api/")


def _has_range(scope: Scope) -> bool:
    return any(name == b"range" for name, _ in scope["headers"])


def _is_worth_it(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return (
        start["status"] == 200
        and headers.get("content-type", "").startswith(_COMPRESSIBLE)
        and not headers.get("content-type", "").startswith("text/event-stream")
        and "content-encoding" not in headers
        and "no-store" not in headers.get("cache-control", "")
    )


def _lifetime(scope: Scope) -> str:
    path: str = scope["path"]
    if path.startswith("/assets/") or (path == "/theme.css" and scope["query_string"].startswith(b"v=")):
        return _FOREVER
    return _A_DAY if path.startswith("/static/") or path == "/favicon.ico" else _ASK_AGAIN
