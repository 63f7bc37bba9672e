"""A store that drops connections, under the event loop that the services run on: every loss is STORE_UNAVAILABLE."""

import asyncio
import socket
import struct
import threading

import pytest
import uvloop
from redis.exceptions import ResponseError

from controller.metrics import Metrics
from controller.store.store import Store
from controller.store_address import parse_address
from tests.controller.support.running import StoreProcess
from wire.errors import ApiError, ErrorCode

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  #: value of SO_LINGER: a close sends RST instead of FIN


class DroppingServer:
    """Answers every command with OK, and resets all connections when it is told to."""

    def __init__(self, reply: bytes = b"+OK\r\n") -> None:
        self._reply = reply
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        """Listens on a free port of loopback; returns the URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    def drop_connections(self) -> None:
        for writer in self._writers:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()
        self._writers.clear()

    def stop(self) -> None:
        self.drop_connections()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while header := await reader.readline():
            for _ in range(2 * int(header[1:])):  # each part of a command: its length, then itself
                await reader.readline()
            writer.write(self._reply)


async def outcomes_of_pings(pause_s: float) -> list[Exception | None]:
    """What pings raise, each sent on a connection that was dropped `pause_s` before."""
    server = DroppingServer()
    store = Store(parse_address(await server.start()), timeout_s=1.0, metrics=Metrics())
    outcomes: list[Exception | None] = []
    for _ in range(6):
        await store.redis.ping()
        server.drop_connections()
        await asyncio.sleep(pause_s)
        try:
            await store.ping()
            outcomes.append(None)
        except Exception as error:
            outcomes.append(error)
    await store.close()
    server.stop()
    return outcomes


@pytest.mark.parametrize("pause_s", [0, 0.02], ids=["unnoticed", "noticed"])
def test_a_dropped_connection_is_a_store_that_does_not_answer(pause_s: float) -> None:
    """uvloop raises a RuntimeError where asyncio raises an OSError; both mean the same."""
    outcomes = uvloop.run(outcomes_of_pings(pause_s))
    assert [error for error in outcomes if error is not None], "no ping has met a dropped connection"
    for error in filter(None, outcomes):
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.STORE_UNAVAILABLE


@pytest.mark.parametrize("reply", [b":no number\r\n", b"$no\r\n", b"@what\r\n"])
def test_a_reply_that_is_not_understood_is_a_store_that_does_not_answer(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer_once, args=(listener, reply), daemon=True).start()
        error = asyncio.run(_outcome_of_ping(listener.getsockname()[1]))
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.STORE_UNAVAILABLE


def _answer_once(listener: socket.socket, reply: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(reply)
        connection.recv(4096)  # until the client closes


async def _outcome_of_ping(port: int) -> Exception | None:
    store = Store(parse_address(f"redis://127.0.0.1:{port}/0"), timeout_s=1.0, metrics=Metrics())
    try:
        await store.ping()
    except Exception as error:
        return error
    finally:
        await store.close()
    return None


def test_a_defect_of_ours_is_not_taken_for_a_failing_store() -> None:
    store = Store(parse_address("redis://127.0.0.1:1/0"), timeout_s=1.0, metrics=Metrics())
    with pytest.raises(RuntimeError, match="ours"), store.guard("test"):
        raise RuntimeError("a defect of ours")


@pytest.mark.parametrize(
    ("reply", "is_failure_of_store"),
    [
        ("READONLY You can't write against a read only replica.", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", True),
        ("NOPERM this user has no permissions to run the 'get' command", True),
        ("MISCONF Errors writing to the AOF file", True),
        ("NOREPLICAS Not enough good replicas to write.", True),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", False),
    ],
)
async def test_errors_of_a_store_that_cannot_serve_are_told_from_defects(reply: str, is_failure_of_store: bool) -> None:
    server = DroppingServer(f"-{reply}\r\n".encode())
    store = Store(parse_address(await server.start()), timeout_s=1.0, metrics=Metrics())

    with pytest.raises(ApiError if is_failure_of_store else ResponseError):
        await store.run_replicated("name_arena", "fence", ["key"], "arena")

    await store.close()
    server.stop()


async def test_a_primary_that_becomes_a_replica_behind_a_write_is_a_store_that_cannot_serve(
    own_store: StoreProcess,
) -> None:
    """WAITAOF refuses on a replica. The write may be gone when the replica has read its new primary."""
    store = Store(parse_address(own_store.url), timeout_s=1.0, metrics=Metrics(), num_replicas=1)
    await store.redis.config_set("replica-read-only", "no")
    await store.redis.replicaof("127.0.0.1", "1")

    with pytest.raises(ApiError) as caught:
        await store.run_replicated("name_arena", "fence", ["key"], "arena")

    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    await store.close()
