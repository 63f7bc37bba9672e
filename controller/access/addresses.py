"""The address that a request comes from. X-Forwarded-For counts only as far as trusted proxies have written it.

A proxy is trusted that shows the proxy token, as the web UI does, or whose address lies in a network that the operator
has named. No address is trusted by default: every process on this machine has a loopback address.
"""

import hashlib
import hmac
import logging
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from fastapi import Request

from service_kit.logs import log_event
from wire.proxies import PROXY_TOKEN_HEADER

Address = IPv4Address | IPv6Address
_LOOPBACK = ip_address("127.0.0.1")
_MAX_HOPS = 16

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClientAddress:
    """Where a request comes from. Rate limits and votes use `identity`: the IPv4 address, or the /64 of an IPv6 one,
    because one visitor has a whole /64. `is_local`: a process on this machine that forwards for no other."""

    identity: str
    is_local: bool

    @property
    def network(self) -> str:
        """The network of the address, which one household or office has: the /24 of IPv4, the /48 of IPv6."""
        address = ip_address(self.identity.partition("/")[0])
        return str(ip_network((address, 24 if address.version == 4 else 48), strict=False))


class Addresses:
    """Finds the client's address behind the trusted proxies. Without a `proxy_token` no request shows it."""

    def __init__(self, trusted_proxies: tuple[IPv4Network | IPv6Network, ...], proxy_token: str) -> None:
        self._trusted = trusted_proxies
        self._token_digest = _digest(proxy_token) if proxy_token else None
        self._warned_of: set[str] = set()

    def is_from_proxy(self, request: Request) -> bool:
        """Whether the request comes from a trusted proxy, which may say who its visitor is."""
        peer = _parse(request.client.host) if request.client else None
        return self._is_trusted(peer or _LOOPBACK) or self._has_token(request)

    def of(self, request: Request) -> ClientAddress:
        """The last address in X-Forwarded-For that is not a trusted proxy's, or the peer's address. Never raises."""
        peer = _parse(request.client.host) if request.client else None
        address = peer or _LOOPBACK  # a Unix socket has no address
        forwarded = request.headers.getlist("x-forwarded-for")
        is_trusted = self._is_trusted(address) or self._has_token(request)
        if forwarded and not is_trusted:
            self._warn(shows_token=PROXY_TOKEN_HEADER in request.headers)
        for hop in reversed(",".join(forwarded).split(",")[-_MAX_HOPS:]):
            parsed = _parse(hop) if is_trusted else None
            if parsed is None:
                break
            address, is_trusted = parsed, self._is_trusted(parsed)
        # A proxy on this machine that is not trusted must not lend its visitors the rights of a local process.
        return ClientAddress(_identity(address), is_local=address.is_loopback and not forwarded)

    def is_this_machine(self, request: Request) -> bool:
        """Whether a process of the controller's machine sends the request, and forwards for no other."""
        if request.client is None or "x-forwarded-for" in request.headers:
            return request.client is None
        server = request.scope.get("server") or (None, None)
        peer = _parse(request.client.host)
        return peer is None or peer.is_loopback or peer == _parse(str(server[0]))

    def _warn(self, *, shows_token: bool) -> None:
        """Once of each event: every client can send the headers, and must not fill the log with them."""
        if not shows_token:
            event = "forwarded_address_ignored"
            hint = "X-Forwarded-For of a proxy that shows no token: name its address in AGON_TRUSTED_PROXIES"
        elif self._token_digest is None:
            event = "proxy_token_not_set"
            hint = "a web UI shows a proxy token, and this controller has none: set AGON_PROXY_TOKEN to the same"
        else:
            event = "proxy_token_wrong"
            hint = "a web UI or proxy shows another token than AGON_PROXY_TOKEN of this controller"
        if event not in self._warned_of:
            self._warned_of.add(event)
            meaning = "all its visitors share one rate limit and, without cookies, one identity"
            log_event(_logger, event, logging.WARNING, hint=hint, meaning=meaning)

    def _has_token(self, request: Request) -> bool:
        shown = request.headers.get(PROXY_TOKEN_HEADER)
        if shown is None or self._token_digest is None:
            return False
        return hmac.compare_digest(_digest(shown), self._token_digest)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text.strip().strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _identity(address: Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((address, 64), strict=False).network_address) + "/64"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
