"""Reads a request body piece by piece, never more than the limit, and validates it."""

import asyncio
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from wire.errors import ApiError, ErrorCode
from wire.strict_json import parse_model

Model = TypeVar("Model", bound=BaseModel)

_INLINE_BYTES = 32 * 1024  #: larger bodies are parsed in a thread
_READ_S = 30.0  #: a client that takes longer to send its body is refused


async def read_model(request: Request, model: type[Model], max_bytes: int) -> Model:
    """Raises ApiError for everything that is not a valid `model`.

    The content type must be JSON's: then a page on some other site cannot make a browser send it without asking first.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(ErrorCode.INVALID_REQUEST, "The Content-Type must be application/json.")
    body = await _read(request, max_bytes)
    if len(body) <= _INLINE_BYTES:
        return parse_model(model, body)
    return await asyncio.to_thread(parse_model, model, body)


async def _read(request: Request, max_bytes: int) -> bytes:
    too_large = ApiError(ErrorCode.REQUEST_TOO_LARGE, f"The body must not be larger than {max_bytes} bytes.")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_READ_S):
            async for chunk in request.stream():
                if len(body) + len(chunk) > max_bytes:
                    raise too_large
                body += chunk
    except TimeoutError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The body did not arrive in time.") from None
    except ClientDisconnect:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The client left before its body was complete.") from None
    return bytes(body)
