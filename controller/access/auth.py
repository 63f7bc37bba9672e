"""Access rules: every router is made for one kind of access, and there is no router without one.

A decision rests on the router that was matched, never on the text of a path.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import APIRouter, Depends, Request

from service_kit.keys import KeyRing
from service_kit.route_docs import Access
from wire.errors import ApiError, ErrorCode

Holder = Literal["user", "worker", "admin"]


class Guard:
    """The access rules of one controller. Without API keys every caller is a user."""

    def __init__(self, *, worker_token: str, admin_token: str, api_keys: tuple[str, ...]) -> None:
        users: list[tuple[Holder, str]] = [("user", key) for key in api_keys]
        self._keys: KeyRing[Holder] = KeyRing([("worker", worker_token), ("admin", admin_token), *users])
        self._users_need_key = bool(api_keys)

    def router(self, access: Access) -> APIRouter:
        """A router whose every route asks for this access."""
        return APIRouter(dependencies=[Depends(self._requirement(access))])

    def check(self, access: Access, authorization: str | None) -> None:
        """Raises ApiError UNAUTHORIZED or FORBIDDEN unless the key in the header grants this access."""
        if access == "open" or (access == "user" and not self._users_need_key):
            return
        holders = self._keys.holders(authorization)
        if access in holders or (access == "user" and "admin" in holders):
            return
        if authorization is None:
            raise ApiError(ErrorCode.UNAUTHORIZED, "This needs a credential: Authorization: Bearer ...")
        if not holders:
            raise ApiError(ErrorCode.UNAUTHORIZED, "This credential is not known.")
        raise ApiError(ErrorCode.FORBIDDEN, "This credential is for something else.")

    def is_admin(self, authorization: str | None) -> bool:
        """Whether the key in the header is the admin token; for routes that show the admin more."""
        return "admin" in self._keys.holders(authorization)

    def _requirement(self, access: Access) -> Callable[[Request], Awaitable[None]]:
        async def require(request: Request) -> None:
            self.check(access, request.headers.get("authorization"))

        return require
