"""Which host names a service answers to, and which web pages may make a browser change something.

A browser sends requests for every page that it shows, with the rights of its machine: a page of a foreign site could
begin battles and vote on an arena that listens on loopback, or read its answers under a host name that resolves to
127.0.0.1 (DNS rebinding). Clients that are no browsers send neither Origin nor Sec-Fetch-Site and are not concerned.
Pages of other origins get in only where CORS admits them to /v1 (cors.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service_kit.cors import CrossOrigin
from service_kit.errors import error_response
from wire.errors import ApiError, ErrorCode

ALLOWED_HOSTS_HELP = (
    "Host names under which the service is reached, such as `arena.example` or `*.example.com`, separated by commas; "
    "requests for others get 403, and pages of these hosts may use it. `*`: any name. Unset: any name, but on loopback "
    "without API keys only local names"
)

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: Probes tell nothing private and are sent to bare addresses; /internal needs the worker token, which no browser has.
_ANY_HOST = re.compile(r"/(health|ready)|/internal/.*", re.DOTALL)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_PATTERN = re.compile(r"\*|(\*\.)?[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def _as_list(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _checked(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if _PATTERN.fullmatch(pattern) is None:
            raise ValueError(f"{pattern!r} is not a host name without scheme and port, such as arena.example")
    return tuple(pattern.lower() for pattern in patterns)


#: The type of the setting `allowed_hosts`, which every service has.
AllowedHosts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_as_list), AfterValidator(_checked)]


def is_loopback(host: str) -> bool:
    """Whether a service that listens on `host` is reached by processes of this machine only."""
    return _is_local_name(f"[{host}]" if ":" in host else host)


@dataclass(frozen=True)
class Hosts:
    """The host names of one service.

    `allowed`: patterns of AGON_ALLOWED_HOSTS. `is_open_locally`: the service listens on loopback and asks for no key,
    so that the host name alone tells a local page from a foreign one.
    """

    allowed: Sequence[str] = ()
    is_open_locally: bool = False

    def answers_to(self, authority: str) -> bool:
        """Whether requests with this Host header are answered."""
        if "*" in self.allowed or not (self.allowed or self.is_open_locally):
            return True
        found = _parse(authority)
        return found is not None and (_is_local_name(found[0]) or self._is_named(found[0]))

    def is_own_page(self, origin: str, authority: str) -> bool:
        """Whether a page of `origin` is one of this service, which was asked as `authority`, or of an allowed host."""
        scheme, has_scheme, rest = origin.partition("://")
        page, asked = _parse(rest) if has_scheme else None, _parse(authority)
        if page is None or scheme not in _DEFAULT_PORTS:
            return False  # "null": a sandboxed page, a file
        if self._is_named(page[0]) and not _is_local_name(page[0]):
            return True  # pages of other ports of this machine are not meant where a local name is allowed
        # A proxy that ends TLS passes the host on, but not always the port.
        default = _DEFAULT_PORTS[scheme]
        return asked is not None and page[0] == asked[0] and (page[1] or default) == (asked[1] or default)

    def _is_named(self, name: str) -> bool:
        return any(
            name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern for pattern in self.allowed
        )


class OriginGuard:
    """ASGI middleware around the whole app: refuses other hosts, and changes that pages of other sites ask for."""

    def __init__(self, app: ASGIApp, hosts: Hosts, cross_origin: CrossOrigin | None = None) -> None:
        self._app = app
        self._hosts = hosts
        self._cross_origin = cross_origin or CrossOrigin()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 `forbidden`, or pass the request on."""
        if scope["type"] == "http":
            try:
                self._check(Headers(scope=scope), scope["method"], scope["path"])
            except ApiError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers, method: str, path: str) -> None:
        hosts = headers.getlist("host")
        authority = hosts[0] if len(hosts) == 1 else ""
        if not self._hosts.answers_to(authority) and _ANY_HOST.fullmatch(path) is None:
            raise ApiError(
                ErrorCode.FORBIDDEN,
                f"This service does not answer to the host name {authority[:100]!r}; AGON_ALLOWED_HOSTS names more.",
            )
        if method in _READING:
            return
        # The browser itself says how page and service are related; only browsers from before 2023, and pages without
        # TLS on other machines, leave it to Origin. The same rules as those of Go's net/http.CrossOriginProtection.
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site in ("same-origin", "none") or (site is None and origin is None):
            return
        if self._cross_origin.admitted(headers, path) is not None:
            return
        if origin is None or not self._hosts.is_own_page(origin, authority):
            way_out = "AGON_ALLOWED_HOSTS names the hosts whose pages may"
            if path.startswith("/v1/"):
                way_out = "AGON_CORS_ORIGINS names the origins whose pages and apps may use /v1"
            raise ApiError(ErrorCode.FORBIDDEN, f"A page of another site sent this request; {way_out}.")


def _parse(authority: str) -> tuple[str, int | None] | None:
    """Name in lower case and port; None for what is no HOST or HOST:PORT."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    return found[1].lower().removesuffix("."), int(found[2]) if found[2] else None


def _is_local_name(name: str) -> bool:
    if name in ("localhost", "[::1]") or name.endswith(".localhost"):  # RFC 6761: never in the public DNS
        return True
    try:
        return IPv4Address(name).is_loopback
    except AddressValueError:
        return False
