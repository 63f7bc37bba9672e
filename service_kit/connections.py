"""How many connections a service keeps open, and when one that takes no bytes is cut off.

A process without a free descriptor cannot accept, open a file or reach its store. So the limit of descriptors is raised
at the start, and connections get a share of it. Where that is full, a new connection takes the place of the one that
has been without a request for the longest time: sockets that send nothing do not keep visitors out.
"""

import asyncio
import logging
import resource
from collections import Counter
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Protocol

from service_kit.logs import log_event

MAX_DESCRIPTORS = 65_536
#: A battle's stream takes a socket, a connection to the store and one to each of two workers.
DESCRIPTORS_PER_CONNECTION = 4
#: One address may have this share of the connections. Not loopback, where one address may be a proxy for many.
SHARE_OF_ADDRESS = 4
STALL_S = 30.0

_SWEEPS_PER_STALL = 6
_LOG_EVERY_S = 60.0

_logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> int:
    """Raise the process's soft limit of descriptors to its hard one, MAX_DESCRIPTORS at most. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (MAX_DESCRIPTORS if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard))
    wanted = min(hard, MAX_DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return max(min(soft, MAX_DESCRIPTORS), wanted)


class Connection(Protocol):
    """A connection as this module sees it; heads.py has the class."""

    transport: asyncio.Transport

    @property
    def is_blocked(self) -> bool:
        """Whether nothing is written to it until the client has read, or at all."""

    def evict(self) -> None:
        """Close it, although it could wait for a request for longer."""


class Connections:
    """The open connections of one service. Used on its event loop."""

    def __init__(self, max_open: int, *, max_per_address: int | None = None, stall_s: float = STALL_S) -> None:
        self._max_open = max_open
        self._max_per_address = max(1, max_open // SHARE_OF_ADDRESS) if max_per_address is None else max_per_address
        self._stall_s = stall_s
        self._open: dict[Connection, str | None] = {}  #: with the address that it counts for
        self._idle: dict[Connection, None] = {}  #: without a request; the longest idle first
        self._per_address: Counter[str] = Counter()
        self._unread: dict[Connection, tuple[int, float]] = {}  #: bytes of blocked ones, and when they became so many
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._logged_at = float("-inf")

    @classmethod
    def for_descriptors(cls, num_descriptors: int) -> "Connections":
        """Room for the connections of a service that may have so many descriptors."""
        return cls(max(1, num_descriptors // DESCRIPTORS_PER_CONNECTION))

    def admit(self, connection: Connection, host: str | None) -> bool:
        """Whether a new connection from `host` may stay. To make room, the longest idle one is evicted."""
        address = _counted_address(host)
        if address is not None and self._per_address[address] >= self._max_per_address:
            self._log("address_has_too_many_connections")
            return False
        if len(self._open) >= self._max_open:
            self._log("too_many_connections")
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.evict()
        self._open[connection] = address
        self._idle[connection] = None
        if address is not None:
            self._per_address[address] += 1
        self._schedule_sweep()
        return True

    def begin_request(self, connection: Connection) -> None:
        """The connection has a request now."""
        self._idle.pop(connection, None)

    def end_request(self, connection: Connection) -> None:
        """The connection waits for its next request."""
        if connection in self._open:
            self._idle[connection] = None

    def remove(self, connection: Connection) -> None:
        """The connection is closed or about to be. Does nothing for one that was not admitted."""
        if connection not in self._open:
            return
        address = self._open.pop(connection)
        self._idle.pop(connection, None)
        self._unread.pop(connection, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    def _schedule_sweep(self) -> None:
        if self._sweep_timer is None and self._open:
            loop = asyncio.get_running_loop()
            self._sweep_timer = loop.call_later(self._stall_s / _SWEEPS_PER_STALL, self._sweep)

    def _sweep(self) -> None:
        """Cut off connections whose client has read nothing for `stall_s`. A transport that is closed waits for its
        client without a limit of its own."""
        now = asyncio.get_running_loop().time()
        for connection in list(self._open):
            num_unread = connection.transport.get_write_buffer_size() if connection.is_blocked else 0
            if not num_unread:
                self._unread.pop(connection, None)
                continue
            num_before, since = self._unread.setdefault(connection, (num_unread, now))
            if num_unread != num_before:
                self._unread[connection] = (num_unread, now)
            elif now - since >= self._stall_s:
                connection.transport.abort()
        self._sweep_timer = None
        self._schedule_sweep()

    def _log(self, event: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            log_event(_logger, event, logging.WARNING, open=len(self._open), idle=len(self._idle))


def _counted_address(host: str | None) -> str | None:
    """What one client cannot have many of: an IPv4 address, or the /64 of an IPv6 one. None: no limit."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return None  # a Unix socket
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return None
    return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)
