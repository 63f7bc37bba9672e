"""Request bodies: read piece by piece up to a limit of bytes and of time, then handed to wire's strict parser. What is
packed is unpacked under the same limit of bytes."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from service_kit.errors import ClientGone
from service_kit.request_ids import note_headers
from wire.errors import ApiError, ErrorCode
from wire.openai.tolerance import Notes
from wire.strict_json import parse_model

BODY_TIMEOUT_S = 30.0

WARNING_HEADER = b"x-agon-warning"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_INLINE_BYTES = 32 * 1024  #: larger bodies are parsed in a thread, so that streams go on meanwhile

Model = TypeVar("Model", bound=BaseModel)


def warn(request: Request, text: str) -> None:
    """Tell the client something beside its answer, in a header. `text` is ASCII."""
    texts = request.scope.setdefault("state", {}).setdefault("warnings", [])
    texts.append(text)
    note_headers(request.scope, {WARNING_HEADER: "; ".join(texts).encode("ascii", "replace")})


class Bodies:
    """How a service reads the bodies of its requests; made once by its composition root."""

    def __init__(self, max_bytes: int, *, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def parse(self, request: Request, model: type[Model]) -> Model:
        """The JSON body of `request` as `model`.

        Raises ApiError INVALID_REQUEST, INVALID_JSON, UNSUPPORTED_PARAMETER or REQUEST_TOO_LARGE, and ClientGone. The
        Content-Type must be application/json. A page of another site then needs a CORS preflight, which is refused
        unless AGON_CORS_ORIGINS names its origin, so it cannot make a visitor's browser send requests to a keyless
        server on the visitor's machine.
        """
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise ApiError(ErrorCode.INVALID_REQUEST, "The Content-Type must be application/json.")
        body, encoding = await self.read(request), request.headers.get("content-encoding", "")
        notes = Notes()

        def parsed() -> Model:
            return parse_model(model, self._unpacked(body, encoding), notes)

        found = parsed() if len(body) <= _INLINE_BYTES and not encoding else await asyncio.to_thread(parsed)
        unknown = sorted(name for name in notes.unknown if _NAME.fullmatch(name))
        if unknown:
            warn(request, f"fields that are not known were left out: {', '.join(unknown)}")
        return found

    def _unpacked(self, body: bytes, encoding: str) -> bytes:
        """Raises ApiError INVALID_REQUEST for another encoding or a broken body, or REQUEST_TOO_LARGE."""
        match encoding.strip().lower():
            case "" | "identity":
                return body
            case "gzip" | "x-gzip" | "deflate":
                windows = (_GZIP_OR_ZLIB, -zlib.MAX_WBITS)  # some clients send deflate without zlib's frame
            case _:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "The Content-Encoding must be gzip, deflate or identity (none)."
                )
        for window in windows:
            unpacking = zlib.decompressobj(window)
            try:
                unpacked = unpacking.decompress(body, self._max_bytes + 1)
            except zlib.error:
                continue
            if len(unpacked) > self._max_bytes:
                raise self._too_large(self._max_bytes)
            if unpacking.eof and not unpacking.unused_data:
                return unpacked
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The body is not what its Content-Encoding says: {encoding[:20]}.")

    @staticmethod
    def _too_large(max_bytes: int) -> ApiError:
        return ApiError(ErrorCode.REQUEST_TOO_LARGE, f"The body must not be larger than {max_bytes} bytes.")

    async def read(self, request: Request, *, max_bytes: int | None = None, timeout_s: float | None = None) -> bytes:
        """The body of `request`, of any media type, under the limits of this service or those given.

        Raises ApiError REQUEST_TOO_LARGE, or INVALID_REQUEST when the time is over, and ClientGone.
        """
        max_bytes = self._max_bytes if max_bytes is None else max_bytes
        too_large = self._too_large(max_bytes)
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > max_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                async for piece in request.stream():
                    if len(body) + len(piece) > max_bytes:
                        raise too_large
                    body += piece
        except TimeoutError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The body did not arrive in time.") from None
        except ClientDisconnect:
            raise ClientGone from None
        return bytes(body)

    async def pieces(self, request: Request) -> AsyncIterator[bytes]:
        """The body of `request` as it arrives, of any length and media type: the client may send the next piece when
        the caller has taken the one before.

        Raises ApiError INVALID_REQUEST when a piece does not come within the time limit, and ClientGone.
        """
        stream = aiter(request.stream())
        try:
            while True:
                async with asyncio.timeout(self._timeout_s):
                    piece = await anext(stream, None)
                if piece is None:
                    return
                yield piece
        except TimeoutError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The body did not arrive in time.") from None
        except ClientDisconnect:
            raise ClientGone from None
