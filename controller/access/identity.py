"""The visitor on whose behalf a request comes: how voters are known is the setting `identity`.

cookie: by a signed cookie that each client gets, or by an invitation; the address only limits rates. A client that
keeps no cookies, such as curl, is known by its address for the time of a battle.
invite: by an invitation, which is a cookie that the administrator has made; there are no other visitors.
With a captcha only visitors who have passed it get a cookie that makes them voters. While its service does not answer,
visitors get in for an hour and are known by their address.
header: by the name that an authenticating proxy, such as oauth2-proxy, sends with each request of a visitor.
"""

from dataclasses import dataclass, replace
from typing import Literal

from fastapi import Request

from controller.access.addresses import Addresses, ClientAddress
from controller.access.captcha import Captcha
from controller.access.invitations import Invitations, not_invited
from wire.captcha import CheckReply
from wire.errors import ApiError, ErrorCode
from wire.invitations import Invitation
from wire.proxies import USER_HEADERS, forwarded_user
from wire.voters import NEW_COOKIE_HEADER, VoterCookies
from wire.votes import IdentityKind

IdentityMode = Literal["cookie", "invite", "header"]


@dataclass(frozen=True)
class Visitor:
    """Who sends a request. `name` is what is known of them: an id of a cookie or an invitation, the proxy's name for
    them, or their address."""

    client: ClientAddress
    kind: IdentityKind
    name: str
    cohort: str | None = None  #: of an invitation
    offered: str | None = None  #: id of the cookie that the client gets with this answer and shows from then on
    may_use_address: bool = True  #: whether the address that began a battle may vote on it


class Identities:
    """Finds the visitor of a request. Shared by the routes that begin battles and take votes."""

    def __init__(
        self,
        addresses: Addresses,
        cookies: VoterCookies,
        invitations: Invitations,
        mode: IdentityMode,
        captcha: Captcha | None = None,
    ) -> None:
        self._addresses = addresses
        self._cookies = cookies
        self._invitations = invitations
        self._mode = mode
        self._captcha = captcha if mode == "cookie" else None

    def client_of(self, request: Request) -> ClientAddress:
        """The address of the client, for rates."""
        return self._addresses.of(request)

    async def of(self, request: Request) -> Visitor:
        """The visitor. Raises ApiError VOTER_NOT_KNOWN where the arena is for known voters and this is none,
        STORE_UNAVAILABLE where an invitation cannot be looked up."""
        client = self.client_of(request)
        if self._mode == "header":
            return Visitor(client, "header", self._user(request), may_use_address=False)
        cookie = self._cookies.read(request.cookies.get(self._cookies.name))
        is_open = self._mode == "cookie"
        if cookie is not None and cookie.kind == "i":
            invitation = await self._invitations.holding(cookie.voter_id)
            if invitation is not None:
                return Visitor(client, "invite", cookie.voter_id, invitation.cohort, may_use_address=is_open)
        elif cookie is not None and is_open and (cookie.kind == "p" or self._captcha is None):
            return Visitor(client, "cookie", cookie.voter_id)
        if not is_open:
            raise ApiError(ErrorCode.VOTER_NOT_KNOWN, "This arena is for voters who were invited.")
        offered = None if self._captcha else self._cookies.read(request.headers.get(NEW_COOKIE_HEADER))
        return Visitor(client, "address", client.identity, offered=None if offered is None else offered.voter_id)

    async def welcome(self, request: Request) -> tuple[Visitor, dict[str, str]]:
        """The visitor of a request that begins something, and headers for its answer: a visitor without a cookie gets
        one. A web UI gives its own to the browser. Raises ApiError as `of`, and CAPTCHA_NEEDED."""
        visitor = await self.of(request)
        if self._captcha is not None and visitor.kind == "address":
            cookie = self._cookies.read(request.cookies.get(self._cookies.name))
            if cookie is None or cookie.kind != "c" or not cookie.opens:
                raise ApiError(ErrorCode.CAPTCHA_NEEDED, "Solve the captcha first: POST /arena/voters/check.")
            return visitor, {}
        if visitor.kind != "address" or visitor.offered is not None:
            return visitor, {}
        text = self._cookies.new()
        cookie = self._cookies.read(text)
        assert cookie is not None
        return replace(visitor, offered=cookie.voter_id), self._set_cookie(request, text)

    async def check_visitor(self, request: Request, response: str) -> tuple[CheckReply, dict[str, str]]:
        """What became of a visitor's captcha, and headers with the cookie that follows from it. Raises ApiError
        CAPTCHA_FAILED."""
        if self._captcha is None:
            return CheckReply(outcome="not_asked"), self._set_cookie(request, self._cookies.new())
        match await self._captcha.outcome(response, self.client_of(request).identity):
            case "passed":
                return CheckReply(outcome="passed"), self._set_cookie(request, self._cookies.new("p"))
            case "unavailable":
                return CheckReply(outcome="unavailable"), self._set_cookie(request, self._cookies.new())
        raise ApiError(ErrorCode.CAPTCHA_FAILED, "The captcha was not solved. Try again.")

    async def join(self, request: Request, token: str) -> tuple[Invitation, dict[str, str]]:
        """The invitation with this token, and headers that make the client its voter. Raises ApiError
        INVITATION_NOT_FOUND, STORE_UNAVAILABLE."""
        cookie = self._cookies.read(token)
        if cookie is None or cookie.kind != "i":
            raise not_invited()
        invitation = await self._invitations.holding(cookie.voter_id)
        if invitation is None:
            raise not_invited()
        return invitation, self._set_cookie(request, invitation.token)

    def _user(self, request: Request) -> str:
        """The name of the visitor. It is believed as the visitor's address is, of trusted proxies only."""
        values = [value for name in USER_HEADERS for value in request.headers.getlist(name)]
        user = forwarded_user(values) if self._addresses.is_from_proxy(request) else None
        if user is None:
            raise ApiError(ErrorCode.VOTER_NOT_KNOWN, "This arena is for visitors who have signed in at its proxy.")
        return user

    def _set_cookie(self, request: Request, text: str) -> dict[str, str]:
        # A client that is lied to by its proxy about TLS harms itself alone.
        is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        return {"Set-Cookie": self._cookies.set_cookie(text, is_secure=is_secure)}
