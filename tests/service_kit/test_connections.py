"""Bounds on open connections, clients that read nothing, and descriptors: with real sockets where it matters."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import uvicorn

from service_kit.connections import MAX_DESCRIPTORS, Connections, raise_descriptor_limit
from service_kit.heads import BoundedHttp
from service_kit.serving import server_config
from tests.ports import reserved_port
from tests.quick_server import QuickServer

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BIG = 32_000_000  #: more than the kernel's buffers of a connection take
PATIENCE_S = 20.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once; with /big at length, with /last and closes the connection, with /wait never."""
    path = scope["path"]
    if path == "/wait":
        await receive()
        await receive()
        return
    body = b"b" * (BIG if path in ("/big", "/last") else 2)
    headers = [(b"content-length", b"%d" % len(body))] + ([(b"connection", b"close")] if path == "/last" else [])
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A server, and connections to it."""

    def __init__(self, address: Any, server: QuickServer, closing: contextlib.AsyncExitStack) -> None:
        self.server = server
        self._address = address
        self._closing = closing

    async def connect(self, sent: bytes = b"") -> Client:
        reader, writer = await asyncio.open_connection(*self._address, limit=2**12)
        self._closing.callback(writer.close)
        writer.write(sent)
        return reader, writer

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(connections: Connections) -> AsyncIterator[Site]:
    class Http(BoundedHttp):
        room = connections

    async with contextlib.AsyncExitStack() as closing:
        listener = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        server = QuickServer(uvicorn.Config(app, http=Http, ws="none", lifespan="off", log_config=None))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield Site(listener.getsockname(), server, closing)
        server.should_exit = server.force_exit = True
        await task


async def head_of(client: Client) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await client[0].readuntil(b"\r\n\r\n")


async def test_a_request_takes_the_place_of_the_longest_idle_connection() -> None:
    async with serving(Connections(3)) as site:
        idle = []
        for _ in range(3):
            idle.append(await site.connect())
            await site.until(lambda: len(site.server.server_state.connections) == len(idle))
        assert (await head_of(await site.connect(GET))).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionResetError):
                assert await idle[0][0].read() == b""
        assert not any(reader.at_eof() for reader, _ in idle[1:])


async def test_a_kept_connection_is_newer_than_one_that_never_sent_a_request() -> None:
    async with serving(Connections(2)) as site:
        used = await site.connect(GET)
        assert (await head_of(used)).startswith(b"HTTP/1.1 200")
        silent = await site.connect()
        await site.until(lambda: len(site.server.server_state.connections) == 2)
        used[1].write(GET)
        assert (await used[0].readexactly(2)) == b"bb"
        assert (await head_of(used)).startswith(b"HTTP/1.1 200")
        await head_of(await site.connect(GET))
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionResetError):
                assert await silent[0].read() == b""


async def test_a_connection_beyond_the_bound_is_refused_while_all_others_have_requests() -> None:
    async with serving(Connections(2)) as site:
        for _ in range(2):
            await site.connect(GET.replace(b"/", b"/wait", 1))
        await site.until(lambda: len(site.server.server_state.tasks) == 2)
        refused = await site.connect()
        head = await head_of(refused)
        assert head.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: 1\r\n" in head
        assert json.loads(await refused[0].read())["error"]["code"] == "too_many_connections"


@pytest.mark.parametrize("path", [b"/big", b"/last"], ids=["kept", "closed by the server"])
async def test_a_client_that_reads_nothing_is_cut_off(path: bytes) -> None:
    async with serving(Connections(9, stall_s=0.3)) as site:
        await site.connect(GET.replace(b"/", path, 1))
        state = site.server.server_state
        await site.until(lambda: state.total_requests == 1)
        await site.until(lambda: not state.connections)


async def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    async with serving(Connections(9, stall_s=0.3)) as site:
        client = await site.connect(GET.replace(b"/", b"/big", 1))
        await head_of(client)
        num_read = 0
        started = time.monotonic()
        while time.monotonic() - started < 1.5:  # five times as long as a stall
            num_read += len(await client[0].read(2**19))
            await asyncio.sleep(0.02)
        async with asyncio.timeout(PATIENCE_S):
            while num_read < BIG:
                piece = await client[0].read(2**20)
                assert piece, "cut off"
                num_read += len(piece)


class FakeConnection:
    """A connection for the bookkeeping alone."""

    transport: Any = None
    is_blocked = False

    def __init__(self) -> None:
        self.is_evicted = False

    def evict(self) -> None:
        self.is_evicted = True


async def test_one_address_has_a_share_and_gets_places_back() -> None:
    room = Connections(100, max_per_address=2)
    hosts = ["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"]
    connections = [FakeConnection() for _ in hosts]
    assert [room.admit(*pair) for pair in zip(connections, hosts, strict=True)] == [True, True, False, True]
    room.remove(connections[2])  # uvicorn tells of every lost connection, also of a refused one
    assert not room.admit(FakeConnection(), "192.0.2.1")
    room.remove(connections[0])
    assert room.admit(FakeConnection(), "192.0.2.1")


async def test_addresses_of_one_ipv6_network_count_as_one_and_loopback_not_at_all() -> None:
    room = Connections(100, max_per_address=1)
    assert room.admit(FakeConnection(), "2001:db8::1")
    assert not room.admit(FakeConnection(), "2001:db8::2")
    assert room.admit(FakeConnection(), "2001:db8:0:1::1")
    assert all(room.admit(FakeConnection(), host) for host in ["127.0.0.1", "127.0.0.2", "::1", None] * 3)


def test_the_limit_of_descriptors_is_raised_within_bounds() -> None:
    code = (
        "import resource as r, sys; from service_kit.connections import raise_descriptor_limit as f;"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, int(sys.argv[1]))); print(f(), *r.getrlimit(r.RLIMIT_NOFILE))"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    hard = 10**6 if hard == resource.RLIM_INFINITY else hard
    for given in (512, hard):
        found = subprocess.run([sys.executable, "-c", code, str(given)], capture_output=True, text=True, check=True)
        wanted = min(given, MAX_DESCRIPTORS)
        assert found.stdout.split() == [str(wanted), str(wanted), str(given)]


def test_every_service_has_its_own_room() -> None:
    first, second = (server_config(app, drain_s=1) for _ in range(2))
    assert first.http.room is not second.http.room  # type: ignore[union-attr]


@pytest.fixture
def controller() -> Iterator[int]:
    """The port of a controller process that was started with 1,024 descriptors, as most shells have them."""
    tokens = {"AGON_WORKER_TOKEN": "w" * 20, "AGON_ADMIN_TOKEN": "a" * 20, "AGON_REDIS_URL": "redis://127.0.0.1:9/0"}
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with reserved_port() as port:
        process = subprocess.Popen(
            ["bash", "-c", f'ulimit -Sn 1024; exec "{sys.executable}" -m controller --port {port}'],
            env={**os.environ, **tokens},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert hard == resource.RLIM_INFINITY or hard > 4096, "this test opens 3,000 sockets"
            yield port
        finally:
            process.kill()
            process.wait()


def health(port: int) -> float:
    """Seconds until the probe is answered."""
    started = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        assert answer.status == 200
    return time.monotonic() - started


@pytest.mark.timeout(120)
def test_idle_sockets_do_not_stop_a_service(controller: int) -> None:
    raise_descriptor_limit()
    give_up_at = time.monotonic() + 60
    while True:
        try:
            health(controller)
            break
        except OSError:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
    with contextlib.ExitStack() as open_sockets:
        for num_more in (1_100, 1_900):
            for _ in range(num_more):
                open_sockets.enter_context(socket.create_connection(("127.0.0.1", controller), timeout=10))
            assert min(health(controller) for _ in range(3)) < 1
