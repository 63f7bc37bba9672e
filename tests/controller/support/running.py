"""Real servers for tests: a store process of its own, ASGI apps on real ports, all in the test's event loop."""

import asyncio
import contextlib
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import uvicorn
from redis import Redis

from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from service_kit.heads import BoundedHttp
from tests.quick_server import QuickServer


class StoreProcess:
    """A store as `agon up` starts it, which tests may kill and start again on the same data."""

    def __init__(self, folder: Path) -> None:
        self._embedded = EmbeddedRedis(folder, find_binary())
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL of its socket for redis-py."""
        return self._embedded.url

    def url_of(self, user: str, password: str) -> str:
        """The same for a user of `add_user`."""
        return self.url.replace("unix://", f"unix://{user}:{password}@", 1)

    def add_user(self, rule: str) -> None:
        """Add a user by the line of an ACL file."""
        with Redis.from_url(self.url) as client:
            client.execute_command("ACL SETUSER", *rule.split()[1:])

    def start(self) -> None:
        """Start the process and wait until it answers."""
        self._embedded.prepare()
        self._process = subprocess.Popen(self._embedded.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up_at = time.monotonic() + 20
        while not self._answers():
            assert time.monotonic() < give_up_at, "the store does not start"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill with SIGKILL and wait for the end. Does nothing when the process is dead already."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self._embedded.socket_path))
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
            except OSError:
                return False


@contextlib.contextmanager
def running_store(folder: Path) -> Generator[StoreProcess, None, None]:
    """A store with its data in `folder`, until the block ends."""
    store = StoreProcess(folder)
    store.start()
    try:
        yield store
    finally:
        store.kill()


@contextlib.asynccontextmanager
async def running_app(app: object, *, port: int | None = None) -> AsyncGenerator[str, None]:
    """Serves `app` on a loopback port until the block ends; gives its base URL."""
    # asyncio disables Nagle's algorithm only when the protocol is named; otherwise each small answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port or 0))
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=BoundedHttp,
        log_config=None,
        interface="asgi3",
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = QuickServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        if task.done():
            task.result()
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()
