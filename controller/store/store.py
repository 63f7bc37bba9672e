"""The client of Redis: two connection pools, Lua scripts by their digest, and one ApiError for every failure.

Nothing is retried here. A command without an answer may have been executed, so only its caller knows whether it is safe
to repeat (an idempotent script is). Knows neither the keys nor the meaning of values.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse, NoScriptError, RedisError, ResponseError

from controller.metrics import Metrics
from wire.entry_ids import LOG_START, EntryId, entry_order
from wire.errors import ApiError, ErrorCode

MAX_CONNECTIONS = 64
MAX_READERS = 4096  #: one connection per open battle stream
READ_BLOCK_S = 1.0  #: a blocked read returns after this time at the latest, so that its caller can check the battle

#: redis-py would read its own package metadata for every connection, which takes 0.5 ms of the event loop.
_NO_CLIENT_NAME: dict[str, Any] = (
    {"driver_info": None} if find_spec("redis.driver_info") is not None else {"lib_name": None, "lib_version": None}
)

StreamEntry = tuple[str, dict[str, str]]  #: id and fields
Result = TypeVar("Result")

#: uvloop's words where asyncio raises an OSError: the connection was reset before a command was written to it.
_CONNECTION_LOST = "the handler is closed"
#: Errors of a Redis that cannot serve now. Every other error response is a defect of our commands.
_NOT_NOW = ("MISCONF", "OOM", "LOADING", "READONLY", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "BUSY")


def unavailable() -> ApiError:
    """The error for every failure of the store (503). The command may or may not have taken effect."""
    return ApiError(ErrorCode.STORE_UNAVAILABLE, "The arena's store does not answer. Try again in a moment.")


class Store:
    """Owns the connections. `redis` may be used for single idempotent commands, inside `guard`. Connects on demand."""

    def __init__(self, url: str, *, timeout_s: float, metrics: Metrics) -> None:
        settings: dict[str, Any] = {
            "decode_responses": True,
            "encoding_errors": "replace",  # a damaged value is dealt with by its reader
            "protocol": 2,
            "socket_connect_timeout": timeout_s / 2,  # a host that is gone is noticed before a command times out
            "retry": Retry(NoBackoff(), 0),  # redis-py's default repeats every command up to ten times
            **_NO_CLIENT_NAME,
        }
        pool = BlockingConnectionPool.from_url(
            url, max_connections=MAX_CONNECTIONS, timeout=timeout_s, socket_timeout=timeout_s, **settings
        )
        readers = ConnectionPool.from_url(
            url, max_connections=MAX_READERS, socket_timeout=READ_BLOCK_S + timeout_s, **settings
        )
        self.redis: Redis = Redis(connection_pool=pool)
        self._readers: Redis = Redis(connection_pool=readers)
        self._scripts = _load_scripts()
        self._metrics = metrics

    @contextmanager
    def guard(self, operation: str) -> Iterator[None]:
        """Turns a failure of the store inside the block into ApiError STORE_UNAVAILABLE, counted under `operation`."""
        try:
            yield
        except (RedisError, OSError, RuntimeError) as error:
            if not _is_failure_of_store(error):
                raise
            self._metrics.redis_errors.labels(operation).inc()
            raise unavailable() from error

    async def run(self, script: str, keys: Sequence[str], *args: str | int | float) -> Any:
        """Execute lua/<script>.lua and return its reply. Raises ApiError STORE_UNAVAILABLE."""
        digest, text = self._scripts[script]
        with self.guard(script):
            try:
                return await _call(self.redis.evalsha, digest, len(keys), *keys, *args)
            except NoScriptError:  # nothing was executed, so this is no retry
                return await _call(self.redis.eval, text, len(keys), *keys, *args)

    async def read_stream(self, key: str, after: EntryId, *, block: bool, count: int = 256) -> list[StreamEntry]:
        """At most `count` entries of a stream after the id `after`; with `block`, waits up to READ_BLOCK_S for the
        first one. Raises ApiError STORE_UNAVAILABLE."""
        with self.guard("read_stream"):
            client, block_ms = (self._readers, int(READ_BLOCK_S * 1000)) if block else (self.redis, None)
            answer = await _call(client.xread, {key: after}, count=count, block=block_ms)
        return cast(list[StreamEntry], answer[0][1]) if answer else []

    async def range_stream(self, key: str, after: EntryId, *, count: int) -> list[StreamEntry]:
        """Like `read_stream`, without waiting, by XRANGE. Raises ApiError STORE_UNAVAILABLE."""
        with self.guard("range_stream"):
            return cast(list[StreamEntry], await _call(self.redis.xrange, key, f"({after}", "+", count))

    async def newest_in_stream(self, key: str, before: EntryId | None, *, count: int) -> list[StreamEntry]:
        """The last `count` entries before the id `before`, or of the stream, newest first. Raises ApiError
        STORE_UNAVAILABLE."""
        if before is not None and entry_order(before) == entry_order(LOG_START):
            return []  # Redis refuses an interval that ends before the lowest id
        end = "+" if before is None else f"({before}"
        with self.guard("newest_in_stream"):
            return cast(list[StreamEntry], await _call(self.redis.xrevrange, key, end, "-", count=count))

    async def ping(self) -> None:
        """Raises ApiError STORE_UNAVAILABLE unless the store answers."""
        with self.guard("ping"):
            await _call(self.redis.ping)

    async def close(self) -> None:
        """Close all connections; blocked reads end with an error."""
        await self.redis.aclose(close_connection_pool=True)
        await self._readers.aclose(close_connection_pool=True)


def _is_failure_of_store(error: Exception) -> bool:
    """Whether the store could not serve; any other error is a defect of ours."""
    match error:
        case ResponseError():
            return str(error).startswith(_NOT_NOW)
        case RuntimeError():
            return _CONNECTION_LOST in str(error)
    return True


async def _call(command: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """redis-py types its results for the sync and the async client alike; results of the async one are awaitable. For a
    reply that it cannot parse it raises a ValueError; here that is a RedisError."""
    try:
        return await cast(Awaitable[Any], command(*args, **kwargs))
    except ValueError as error:
        raise InvalidResponse("the reply is not understood") from error


def _load_scripts() -> dict[str, tuple[str, str]]:
    """Digest and text by name. A first line "-- needs: NAME" puts the text of NAME.lua, a function, before a script."""
    texts = {
        file.name.removesuffix(".lua"): file.read_text()
        for file in (resources.files("controller.store") / "lua").iterdir()
        if file.name.endswith(".lua")
    }
    scripts = {}
    for name, own_text in texts.items():
        first_line = own_text.partition("\n")[0]
        text = texts.get(first_line.removeprefix("-- needs: "), "") + own_text
        scripts[name] = (hashlib.sha1(text.encode()).hexdigest(), text)
    return scripts
