"""Who may call what: every router is made for one kind of access, and there is no router without one.

A credential is known by its digest and compared in constant time. Decisions rest on the router that was matched, never
on the text of a path.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import APIRouter, Depends, Request

from wire.errors import ApiError, ErrorCode

Access = Literal["open", "user", "worker", "admin"]
Holder = Literal["nobody", "unknown", "user", "worker", "admin"]


class Guard:
    def __init__(self, *, worker_token: str, admin_token: str, api_keys: tuple[str, ...]) -> None:
        self._digests: list[tuple[Holder, bytes]] = [("worker", _digest(worker_token)), ("admin", _digest(admin_token))]
        self._digests.extend(("user", _digest(key)) for key in api_keys)
        self._users_need_key = bool(api_keys)

    def router(self, access: Access) -> APIRouter:
        """A router whose every route asks for this access."""
        return APIRouter(dependencies=[Depends(self._requirement(access))])

    def _requirement(self, access: Access) -> Callable[[Request], Awaitable[None]]:
        async def require(request: Request) -> None:
            self.check(access, request.headers.get("authorization"))

        return require

    def check(self, access: Access, authorization: str | None) -> None:
        """Raises ApiError UNAUTHORIZED or FORBIDDEN."""
        if access == "open" or (access == "user" and not self._users_need_key):
            return
        holder = self._holder(authorization)
        if holder == access or (access == "user" and holder == "admin"):
            return
        if holder == "nobody":
            raise ApiError(ErrorCode.UNAUTHORIZED, "This needs a credential: Authorization: Bearer ...")
        if holder == "unknown":
            raise ApiError(ErrorCode.UNAUTHORIZED, "This credential is not known.")
        raise ApiError(ErrorCode.FORBIDDEN, "This credential is for something else.")

    def _holder(self, authorization: str | None) -> Holder:
        if authorization is None:
            return "nobody"
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return "unknown"
        digest = _digest(token.strip())
        found: Holder = "unknown"
        for holder, known in self._digests:  # all of them, so that time tells nothing
            if hmac.compare_digest(digest, known):
                found = holder
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
