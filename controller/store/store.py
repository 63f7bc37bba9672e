"""The client of Redis: two connection pools, Lua scripts by their digest, and one ApiError for every failure.

Nothing is retried here. A command without an answer may have been executed, so only its caller knows whether it is safe
to repeat (an idempotent script is). Knows neither the keys nor the meaning of values.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.exceptions import (
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from controller.metrics import Metrics
from controller.store.connections import READ_BLOCK_S, make_pools
from controller.store.troubles import Troubles
from controller.store_address import StoreAddress
from wire.entry_ids import LOG_START, EntryId, entry_order
from wire.errors import ApiError, ErrorCode

StreamEntry = tuple[str, dict[str, str]]  #: id and fields
Result = TypeVar("Result")

#: uvloop's words where asyncio raises an OSError: the connection was reset before a command was written to it.
_CONNECTION_LOST = "the handler is closed"
#: Errors of a Redis that cannot serve now, or not us. Every other error response is a defect of our commands. redis-py
#: makes classes of some, and takes the first word off their text.
_NOT_NOW = ("MISCONF", "LOADING", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "NOAUTH")
_NOT_NOW_CLASSES = (ReadOnlyError, OutOfMemoryError, NoPermissionError)

_IS_REPLICA = "cannot be used with replica"  #: what WAIT and WAITAOF say on a server that is no primary any more


def unavailable() -> ApiError:
    """The error for every failure of the store (503). The command may or may not have taken effect."""
    return ApiError(ErrorCode.STORE_UNAVAILABLE, "The arena's store does not answer. Try again in a moment.")


class Store:
    """Owns the connections. `redis` may be used for single idempotent commands, inside `guard`. Connects on demand."""

    def __init__(self, address: StoreAddress, *, timeout_s: float, metrics: Metrics, num_replicas: int = 0) -> None:
        """timeout_s: of one command. num_replicas: how many replicas must have a write of `run_replicated` on disk."""
        pools = make_pools(address, timeout_s=timeout_s)
        self.redis: Redis = Redis(connection_pool=pools.commands)
        self._readers: Redis = Redis(connection_pool=pools.readers)
        self._watch = pools.watch
        self._scripts = _load_scripts()
        self._metrics = metrics
        self._troubles = Troubles(address)
        self._num_replicas = num_replicas
        self._wait_ms = round(450 * timeout_s)  # twice, within the time limit of the command

    @contextmanager
    def guard(self, operation: str) -> Iterator[None]:
        """Turns a failure of the store inside the block into ApiError STORE_UNAVAILABLE, counted under `operation`."""
        try:
            yield
            self._troubles.note_success()
        except (RedisError, OSError, RuntimeError) as error:
            if not _is_failure_of_store(error):
                raise
            self._troubles.note(error)
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

    async def run_replicated(self, script: str, fence: str, keys: Sequence[str], *args: str | int | float) -> Any:
        """As `run`; the reply comes when this and all earlier writes are in the append-only files of this store and of
        the replicas that are asked for. Raises ApiError STORE_UNAVAILABLE also where these are not reached: then the
        write may be lost with this server, and the same call may be repeated.

        `fence`: a key that is written too, because a script that finds its work done writes nothing, and WAITAOF waits
        for the connection's own writes.
        """
        if not self._num_replicas:
            return await self.run(script, keys, *args)
        digest, text = self._scripts[script]
        with self.guard(script):
            reply, num_reached = await self._replicated("evalsha", digest, fence, keys, args)
            if isinstance(reply, NoScriptError):
                reply, num_reached = await self._replicated("eval", text, fence, keys, args)
        if num_reached < self._num_replicas:
            self._metrics.redis_errors.labels("waitaof").inc()
            self._troubles.note_unreplicated(num_reached, self._num_replicas)
            raise unavailable()
        self._troubles.note_replicated()
        return reply

    async def _replicated(
        self, command: str, script: str, fence: str, keys: Sequence[str], args: Sequence[str | int | float]
    ) -> tuple[Any, int]:
        """The script's reply, or NoScriptError, and how many replicas hold its writes. Raises RedisError."""
        async with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(command, script, len(keys), *keys, *args)
            pipeline.set(fence, 1)
            # A replica answers WAITAOF with what it had on disk when the question came, so alone it takes until the
            # next second's report. WAIT first: it returns when the replica has read the writes, 0.4 ms for both.
            pipeline.execute_command("WAIT", self._num_replicas, self._wait_ms)
            pipeline.execute_command("WAITAOF", 1, self._num_replicas, self._wait_ms)
            reply, _, _, reached = await _call(pipeline.execute, raise_on_error=False)
        if isinstance(reached, ResponseError) and _IS_REPLICA in str(reached):  # since the script wrote
            raise ReadOnlyError(str(reached)) from reached
        for found in (reply, reached):
            if isinstance(found, Exception) and not isinstance(found, NoScriptError):
                raise found
        return reply, int(reached[1])

    async def follow_primary(self) -> None:
        """Background work: where Sentinel says which server is the store, look whether that has changed."""
        if self._watch is not None:
            await self._watch.look()

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
        if self._watch is not None:
            await self._watch.close()


def _is_failure_of_store(error: Exception) -> bool:
    """Whether the store could not serve; any other error is a defect of ours."""
    match error:
        case ResponseError():
            return isinstance(error, _NOT_NOW_CLASSES) or str(error).startswith(_NOT_NOW)
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
