"""What sessions cost the web UI: python -m benchmarks.webui_sessions [--sessions N]

Starts a web UI without a controller and sends it visitors from as many addresses as there are sessions: whole visits (a
page's load event, its event stream read to the end), bare joins whose events are never fetched, and readers that open
their stream and never read it. Prints one JSON object with resident sizes in MB. The aim is a resident size under
300 MB after 20,000 visits, 5,000 bare joins and 500 silent readers.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from cli.bench.record import commit, machine

CONCURRENCY = 16
_START_S = 120.0


@contextmanager
def webui(port: int, controller_url: str = "http://127.0.0.1:9") -> Iterator[subprocess.Popen[bytes]]:
    """A web UI as its own process, ready; killed when the block is left."""
    command = [sys.executable, "-P", "-m", "webui", "--port", str(port), "--controller", controller_url]
    # The visitors come through a proxy, as it were, or one address would be refused most of its sessions.
    settings = {"PYTHONPATH": str(Path.cwd()), "AGON_WEBUI_TRUSTED_PROXIES": "127.0.0.1"}
    with subprocess.Popen(command, env={**os.environ, **settings}) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not _is_up(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the web UI did not start")
                time.sleep(0.1)
            yield process
        finally:
            process.kill()


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def resident_mb(pid: int) -> float:
    """Resident size of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1000, 1)
    raise RuntimeError(f"no resident size of process {pid}")


class Visitors:
    """Sends sessions to one web UI, each with an address and a session hash of its own. Speaks HTTP over plain sockets:
    a client library would take longer than the service."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.refused: dict[int, int] = {}  #: answers other than 200, by status
        self.load_event = self._find_load_event()  #: body of a join, without its session hash
        self._silent: list[asyncio.StreamWriter] = []

    def _find_load_event(self) -> dict[str, object]:
        config = httpx.get(f"http://127.0.0.1:{self.port}/config", trust_env=False, timeout=30).json()
        for dependency in config["dependencies"]:
            target = next((one for one in dependency["targets"] if one[1] == "load"), None)
            if target is not None:
                data = [None] * len(dependency["inputs"])
                return {"data": data, "fn_index": dependency["id"], "trigger_id": target[0], "event_data": None}
        raise RuntimeError("no page has a load event")

    async def visit(self) -> None:
        """A page is opened and closed: its load event runs and its stream is read to the end."""
        address, session = _address(), _session()
        if await self._join(address, session):
            await self._exchange(f"GET /gradio_api/queue/data?session_hash={session} HTTP/1.1", address)

    async def join_only(self) -> None:
        """An event is queued and never fetched."""
        await self._join(_address(), _session())

    async def read_nothing(self) -> None:
        """A stream is opened and not read; its connection stays open."""
        address, session = _address(), _session()
        if await self._join(address, session):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(_head(f"GET /gradio_api/queue/data?session_hash={session} HTTP/1.1", address, self.port))
            self._silent.append(writer)

    async def repeat(self, action: Callable[[], Awaitable[None]], times: int) -> float:
        """Run `action` so often, CONCURRENCY at once; returns the seconds that it took."""
        left = iter(range(times))

        async def work() -> None:
            for _ in left:
                await action()

        started = time.monotonic()
        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
        return round(time.monotonic() - started, 1)

    async def _join(self, address: str, session: str) -> bool:
        body = json.dumps({**self.load_event, "session_hash": session}).encode()
        status = await self._exchange("POST /gradio_api/queue/join HTTP/1.1", address, body)
        if status != 200:
            self.refused[status] = self.refused.get(status, 0) + 1
        return status == 200

    async def _exchange(self, line: str, address: str, body: bytes = b"") -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(_head(line, address, self.port, len(body)) + body)
            status = int((await reader.readline()).split()[1])
            await reader.read()
            return status
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def _head(line: str, address: str, port: int, length: int = 0) -> bytes:
    content = f"Content-Type: application/json\r\nContent-Length: {length}\r\n" if length else ""
    return (
        f"{line}\r\nHost: 127.0.0.1:{port}\r\nX-Forwarded-For: {address}\r\nConnection: close\r\n{content}\r\n".encode()
    )


def _address() -> str:
    return ".".join(str(random.randrange(1, 255)) for _ in range(4))


def _session() -> str:
    return f"{random.getrandbits(60):x}"


async def measure(pid: int, port: int, num_visits: int, num_joins: int, num_silent: int) -> dict[str, object]:
    """Resident sizes in MB before and after each kind of visitor, and how long the visitors took."""
    visitors = Visitors(port)
    await visitors.repeat(visitors.visit, 50)
    found: dict[str, object] = {"idle_mb": resident_mb(pid)}
    for name, action, times in (
        ("visits", visitors.visit, num_visits),
        ("bare_joins", visitors.join_only, num_joins),
        ("silent_readers", visitors.read_nothing, num_silent),
    ):
        taken_s = await visitors.repeat(action, times)
        found[name] = {"sessions": times, "seconds": taken_s, "after_mb": resident_mb(pid)}
    found["refused"] = visitors.refused
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--joins", type=int, default=5_000)
    parser.add_argument("--silent", type=int, default=500)
    parser.add_argument("--port", type=int, default=0, help="port of the web UI; 0: any free one")
    options = parser.parse_args()

    port = options.port or free_port()
    with webui(port) as process:
        found = asyncio.run(measure(process.pid, port, options.sessions, options.joins, options.silent))
    print(json.dumps({"benchmark": "webui_sessions", "commit": commit(), "machine": machine(), **found}))


def free_port() -> int:
    """A port of the loopback address that is free now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


if __name__ == "__main__":
    main()
