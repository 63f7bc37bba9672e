"""Sentinel: which of several servers is the store now, and connections that go there.

Sentinel (valkey.io/topics/sentinel) watches a primary and its replicas, and makes a replica the primary when that is
gone. A controller asks at every new connection and twice a second; when the answer has changed, all connections to the
former primary are closed, so that nothing waits for a host that is gone.
"""

import asyncio
import contextlib
import logging
from typing import Any, cast

from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.connection import SSLConnection
from redis.exceptions import RedisError

from controller.store_address import HostAndPort, SentinelService
from service_kit.logs import log_event

#: How long the other sentinels are waited for after the first answer: the one with the newest configuration counts.
_GRACE_S = 0.05
LOOK_S = 0.5  #: seconds between two looks whether the primary has changed

_logger = logging.getLogger(__name__)


class NoPrimary(RedisError):
    """No sentinel that answers knows the service, or none answers."""


class PrimaryFinder:
    """Asks the sentinels of one service. Owns the connections to them."""

    def __init__(
        self, service: SentinelService, *, timeout_s: float, kind: type[Connection], settings: dict[str, Any]
    ) -> None:
        """kind, settings: redis-py's class of connections and their settings."""
        self._service = service
        login: dict[str, Any] = {"username": service.username, "password": service.password}
        timed: dict[str, Any] = {**settings, "socket_timeout": timeout_s / 2}
        self._sentinels = [
            Redis.from_pool(ConnectionPool(connection_class=kind, host=host, port=port, **login, **timed))
            for host, port in service.sentinels
        ]

    async def find(self) -> HostAndPort:
        """The primary, by the newest configuration that a sentinel has. Raises NoPrimary."""
        asked = {asyncio.create_task(self._ask(sentinel)) for sentinel in self._sentinels}
        answers: list[tuple[int, HostAndPort]] = []
        try:
            while asked:
                timeout_s = _GRACE_S if answers else None
                done, asked = await asyncio.wait(asked, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                answers += [answer for task in done if (answer := task.result()) is not None]
        finally:
            for task in asked:
                task.cancel()
        if not answers:
            raise NoPrimary(f"no sentinel knows a primary of {self._service.name!r}")
        return max(answers)[1]

    async def close(self) -> None:
        """Close the connections to the sentinels."""
        for sentinel in self._sentinels:
            await sentinel.aclose()  # and the pool, which it owns

    async def _ask(self, sentinel: "Redis") -> tuple[int, HostAndPort] | None:
        """Epoch of the configuration and address of the primary; None where this sentinel cannot say."""
        with contextlib.suppress(RedisError, OSError):
            state = cast(dict[str, Any], await sentinel.sentinel_master(self._service.name))
            if state["is_master"] and not state["is_odown"]:
                return int(state["config-epoch"]), (str(state["ip"]), int(state["port"]))
        return None


class PrimaryWatch:
    """Follows the primary for the pools that connect to it, and closes their connections when it has changed."""

    def __init__(self, finder: PrimaryFinder) -> None:
        self._finder = finder
        self._pools: list[ConnectionPool] = []
        self._known: HostAndPort | None = None

    def watch_for(self, pool: ConnectionPool) -> None:
        """Close the connections of this pool, too, when the primary changes."""
        self._pools.append(pool)

    async def address(self) -> HostAndPort:
        """The primary now. Raises NoPrimary."""
        found = await self._finder.find()
        if found != self._known:
            former, self._known = self._known, found
            log_event(_logger, "store_primary", address=":".join(map(str, found)))
            if former is not None:
                await self.disconnect()
        return found

    async def disconnect(self) -> None:
        """Close all connections; what waits for an answer on one fails."""
        for pool in self._pools:
            await pool.disconnect(inuse_connections=True)

    async def look(self) -> None:
        """Ask once more, as background work: sentinels that cannot say are no error."""
        with contextlib.suppress(RedisError):
            await self.address()

    async def close(self) -> None:
        """Close the connections to the sentinels."""
        await self._finder.close()


class _ToPrimary(Connection):
    """Mixin of connections: asks where to connect each time that it connects."""

    def __init__(self, *, primary: PrimaryWatch, **settings: Any) -> None:
        self._primary = primary
        super().__init__(**settings)

    async def _connect(self) -> None:
        self.host, self.port = await self._primary.address()
        await super()._connect()  # type: ignore[no-untyped-call]


class PrimaryConnection(_ToPrimary):
    """A connection to the primary."""


class PrimarySSLConnection(_ToPrimary, SSLConnection):
    """The same over TLS."""
