"""Request bodies: read piece by piece up to a limit, and handed to wire's strict parser."""

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from controller.errors import ClientGone
from wire.errors import ApiError, ErrorCode
from wire.strict_json import parse_model

Model = TypeVar("Model", bound=BaseModel)

DISCARDED_BYTES = 32_000_000  #: a client that is still sending reads no answer; so much of its excess is thrown away


class Bodies:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def parse(self, request: Request, model: type[Model]) -> Model:
        """The body as `model`; raises ApiError for whatever is wrong with it."""
        content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise ApiError(ErrorCode.INVALID_REQUEST, "The Content-Type must be application/json.")
        return parse_model(model, await self.read(request))

    async def read(self, request: Request, max_bytes: int | None = None) -> bytes:
        limit = self._max_bytes if max_bytes is None else max_bytes
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.stream():
                size += len(part)
                if size <= limit:
                    parts.append(part)
                elif size > limit + DISCARDED_BYTES:
                    break
        except ClientDisconnect:
            raise ClientGone from None
        if size > limit:
            raise ApiError(ErrorCode.REQUEST_TOO_LARGE, f"The body is larger than {limit} bytes.")
        return b"".join(parts)
