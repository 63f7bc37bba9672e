"""The address that a request comes from. X-Forwarded-For counts only as far as trusted proxies have written it."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from fastapi import Request

Address = IPv4Address | IPv6Address
_LOOPBACK = ip_address("127.0.0.1")
_MAX_HOPS = 16


@dataclass(frozen=True)
class ClientAddress:
    """Where a request comes from. Rate limits and votes use `identity`: the IPv4 address, or the /64 of an IPv6 one,
    because one visitor has a whole /64."""

    identity: str
    is_local: bool


class Addresses:
    """Finds the client's address behind the trusted proxies."""

    def __init__(self, trusted_proxies: tuple[IPv4Network | IPv6Network, ...]) -> None:
        self._trusted = trusted_proxies

    def of(self, request: Request) -> ClientAddress:
        """The last address in X-Forwarded-For that no trusted proxy has, or the peer's. Never raises."""
        peer = _parse(request.client.host) if request.client else None
        address = peer or _LOOPBACK  # a Unix socket has no address
        hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        for hop in reversed(hops[-_MAX_HOPS:]):
            if not self._is_trusted(address):
                break
            forwarded = _parse(hop)
            if forwarded is None:
                break
            address = forwarded
        return ClientAddress(_identity(address), address.is_loopback)

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
