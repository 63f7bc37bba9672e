"""The two connection pools of a store: one for commands, one for readers that block.

Commands wait for a free connection; blocked readers each hold one.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from redis.asyncio import BlockingConnectionPool, Connection, ConnectionPool
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from controller.store.sentinel import PrimaryConnection, PrimaryFinder, PrimarySSLConnection, PrimaryWatch
from controller.store_address import StoreAddress

MAX_CONNECTIONS = 64
MAX_READERS = 4096  #: one connection per open battle stream
READ_BLOCK_S = 1.0  #: a blocked read returns after this time at the latest, so that its caller can check the battle

#: redis-py would read its own package metadata for every connection, which takes 0.5 ms of the event loop.
_NO_CLIENT_NAME: dict[str, Any] = (
    {"driver_info": None} if find_spec("redis.driver_info") is not None else {"lib_name": None, "lib_version": None}
)


@dataclass(frozen=True, slots=True)
class Pools:
    """The connections to one store. `watch`: who follows its primary, where Sentinel says which server that is."""

    commands: BlockingConnectionPool
    readers: ConnectionPool
    watch: PrimaryWatch | None


def make_pools(address: StoreAddress, *, timeout_s: float) -> Pools:
    """Pools that connect on demand. timeout_s: of one command, waiting for a connection included."""
    common: dict[str, Any] = {
        "decode_responses": True,
        "protocol": 2,
        "socket_connect_timeout": timeout_s / 2,  # a host that is gone is noticed before a command times out
        "retry": Retry(NoBackoff(), 0),  # redis-py's default repeats every command up to ten times
        **_NO_CLIENT_NAME,
    }
    if address.is_encrypted and address.ca_file is not None:
        common["ssl_ca_certs"] = str(address.ca_file)
    settings: dict[str, Any] = parse_url(address.server) | common
    settings["encoding_errors"] = "replace"  # a damaged value is dealt with by its reader
    given = {"username": address.username, "password": address.password}
    settings |= {name: value for name, value in given.items() if value is not None}
    watch = None
    if address.service is not None:
        kind = SSLConnection if address.is_encrypted else Connection
        watch = PrimaryWatch(PrimaryFinder(address.service, timeout_s=timeout_s, kind=kind, settings=common))
        settings["connection_class"] = PrimarySSLConnection if address.is_encrypted else PrimaryConnection
        settings["primary"] = watch
    commands = BlockingConnectionPool(
        max_connections=MAX_CONNECTIONS, timeout=timeout_s, socket_timeout=timeout_s, **settings
    )
    readers = ConnectionPool(max_connections=MAX_READERS, socket_timeout=READ_BLOCK_S + timeout_s, **settings)
    if watch is not None:
        watch.watch_for(commands)
        watch.watch_for(readers)
    return Pools(commands, readers, watch)
