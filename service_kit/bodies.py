"""Request bodies: read piece by piece up to a limit of bytes and of time, then handed to wire's strict parser."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from service_kit.errors import ClientGone
from wire.errors import ApiError, ErrorCode
from wire.strict_json import parse_model

BODY_TIMEOUT_S = 30.0

_INLINE_BYTES = 32 * 1024  #: larger bodies are parsed in a thread, so that streams go on meanwhile

Model = TypeVar("Model", bound=BaseModel)


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
        body = await self.read(request)
        if len(body) <= _INLINE_BYTES:
            return parse_model(model, body)
        return await asyncio.to_thread(parse_model, model, body)

    async def read(self, request: Request, *, max_bytes: int | None = None, timeout_s: float | None = None) -> bytes:
        """The body of `request`, of any media type, under the limits of this service or those given.

        Raises ApiError REQUEST_TOO_LARGE, or INVALID_REQUEST when the time is over, and ClientGone.
        """
        max_bytes = self._max_bytes if max_bytes is None else max_bytes
        too_large = ApiError(ErrorCode.REQUEST_TOO_LARGE, f"The body must not be larger than {max_bytes} bytes.")
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
