"""Access rules: every router is made for one kind of access, and there is no router without one.

A decision rests on the router that was matched, never on the text of a path.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import APIRouter, Depends, Request

from controller.access.addresses import Addresses
from controller.metrics import Metrics
from service_kit.keys import KeyRing, WrongKeys, credential
from service_kit.route_docs import Access
from wire.errors import ApiError, ErrorCode
from wire.proxies import USER_HEADERS, forwarded_user

Holder = Literal["user", "worker", "admin"]


class Guard:
    """The access rules of one controller. Without API keys every caller is a user. `admin_users`: names that are
    administrators where a trusted proxy sends them; `addresses` says which proxy is trusted. Credentials that are not
    known are counted in `metrics`."""

    def __init__(
        self,
        *,
        worker_token: str,
        admin_token: str,
        api_keys: tuple[str, ...],
        addresses: Addresses,
        metrics: Metrics,
        admin_users: tuple[str, ...] = (),
    ) -> None:
        users: list[tuple[Holder, str]] = [("user", key) for key in api_keys]
        self._keys: KeyRing[Holder] = KeyRing([("worker", worker_token), ("admin", admin_token), *users])
        self._users_need_key = bool(api_keys)
        self._addresses = addresses
        self._admin_users = frozenset(admin_users)
        self._wrong = WrongKeys(lambda access: metrics.wrong_credentials.labels(access).inc())

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

    def is_admin(self, request: Request) -> bool:
        """Whether an administrator sends the request: with the admin token, or named by a trusted proxy."""
        return "admin" in self._keys.holders(request.headers.get("authorization")) or self._is_admin_user(request)

    def _is_admin_user(self, request: Request) -> bool:
        if not self._admin_users or not self._addresses.is_from_proxy(request):
            return False
        values = [value for name in USER_HEADERS for value in request.headers.getlist(name)]
        return forwarded_user(values) in self._admin_users

    def _requirement(self, access: Access) -> Callable[[Request], Awaitable[None]]:
        async def require(request: Request) -> None:
            if access == "admin" and self._is_admin_user(request):
                return
            given = credential(request.headers) if access == "user" else request.headers.get("authorization")
            try:
                self.check(access, given)
            except ApiError as error:
                if given is not None and error.code is ErrorCode.UNAUTHORIZED:
                    self._wrong.note(access, self._addresses.of(request).identity)
                raise

        return require
