"""Which URLs a worker may register: protection against server-side request forgery (SSRF) by a registration.

Knows no store and resolves no name. A pattern is a network (`10.0.0.0/8`), or a host name in which `*` stands for part
of one label (`worker-*` does not match `worker-1.example.com`).
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from service_kit.own_addresses import is_loopback_host
from wire.errors import ApiError, ErrorCode

MAX_URL_CHARS = 512


class WorkerHosts:
    """The allowed hosts, from the patterns of AGON_WORKER_HOSTS."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: list[re.Pattern[str]] = []
        for pattern in patterns:
            try:
                self._networks.append(ip_network(pattern))
            except ValueError:
                name = "[^.]*".join(re.escape(part) for part in pattern.lower().split("*"))
                self._names.append(re.compile(name))

    def checked(self, url: str, *, is_from_here: bool = True) -> str:
        """`url` without a trailing slash. Raises ApiError INVALID_REQUEST unless it is http(s)://host[:port], FORBIDDEN
        when no pattern allows its host, or when it is a loopback URL and the caller on another machine."""
        parts = self._split(url)
        if parts is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "A worker's url must be http://host:port or https://host:port.", param="url"
            )
        host, base = parts
        if not is_from_here and is_loopback_host(host):
            raise ApiError(
                ErrorCode.FORBIDDEN,
                f"The worker is on another machine than the controller and cannot be reached at {host!r}: give it "
                "--host with an address of its machine, or AGON_WORKER_URL.",
            )
        if not self._allows(host):
            raise ApiError(
                ErrorCode.FORBIDDEN,
                f"Workers on {host!r} are not allowed: add it, or its network, to AGON_WORKER_HOSTS of the controller.",
            )
        return base

    def _split(self, url: str) -> tuple[str, str] | None:
        if len(url) > MAX_URL_CHARS or not url.isascii() or not url.isprintable() or "\\" in url:
            return None
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            return None
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or port == 0:
            return None
        if parts.path not in ("", "/") or parts.query or parts.fragment or "?" in url or "#" in url:
            return None
        return parts.hostname.lower(), f"{parts.scheme}://{parts.netloc}"

    def _allows(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return any(name.fullmatch(host) for name in self._names)
        return any(address in network for network in self._networks)
