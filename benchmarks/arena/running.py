"""A store and one controller as processes of their own, with journal and checkpoints, as `agon up` runs them; and
probes that note how long an answer takes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from cli.bench.record import percentile
from wire.proxies import PROXY_TOKEN_HEADER

ADMIN_TOKEN = "admin-token-of-the-benchmark"
PROXY_TOKEN = "proxy-token-of-the-benchmark"
START_S = 600.0
#: A visitor's limits, which would refuse 100 boards at once and 20 questions a second after /health.
_NO_LIMITS = {"AGON_RATE_PER_MINUTE": "600000", "AGON_RATE_BURST": "100000"}


class BenchArena:
    """The processes and their folder, which may hold an arena of an earlier run."""

    def __init__(self, folder: Path, port: int, *, has_journal: bool = True) -> None:
        self._has_journal = has_journal
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._port = port
        self._redis = EmbeddedRedis(folder / "store", find_binary())
        self.store: subprocess.Popen[bytes] | None = None
        self.controller: subprocess.Popen[bytes] | None = None

    @property
    def store_url(self) -> str:
        """For clients of the store."""
        return self._redis.url

    def start_store(self) -> float:
        """Seconds until it answers."""
        began = time.monotonic()
        self._redis.prepare()
        self.store = subprocess.Popen(self._redis.command, stdout=subprocess.DEVNULL)
        _wait_until(lambda: asyncio.run(self._redis.ping()), self.store)
        return time.monotonic() - began

    def start_controller(self, path: str = "/ready") -> float:
        """Seconds until it answers `path` with 200."""
        began = time.monotonic()
        command = [sys.executable, "-P", "-m", "controller", "--port", str(self._port)]
        with open(self._folder / "controller.log", "ab") as log:
            self.controller = subprocess.Popen(command, env=self._environment(), stderr=log)
        with httpx.Client(base_url=self.url, trust_env=False, timeout=START_S) as client:
            _wait_until(lambda: _answers(client, path), self.controller)
        return time.monotonic() - began

    def stop_controller(self) -> None:
        """End it as `agon up` does, and wait."""
        if self.controller is not None:
            self.controller.send_signal(signal.SIGTERM)
            self.controller.wait()
            self.controller = None

    def stop(self) -> None:
        """End both."""
        self.stop_controller()
        if self.store is not None:
            self.store.send_signal(signal.SIGTERM)
            self.store.wait()
            self.store = None

    def client_environment(self) -> dict[str, str]:
        """For commands of `agon`."""
        return {
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "AGON_ADMIN_TOKEN": ADMIN_TOKEN,
            "AGON_CONTROLLER_URL": self.url,
        }

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **_NO_LIMITS,
            "PYTHONPATH": str(Path.cwd()),
            "AGON_REDIS_URL": self._redis.url,
            "AGON_WORKER_TOKEN": "worker-token-of-the-benchmark",
            "AGON_ADMIN_TOKEN": ADMIN_TOKEN,
            "AGON_PROXY_TOKEN": PROXY_TOKEN,
            "AGON_JOURNAL_DIR": str(self._folder / "journal") if self._has_journal else "",
            "AGON_BOARDS_DIR": str(self._folder / "boards"),
        }


class Probe:
    """Asks for one path again and again, and keeps how long each answer took, in seconds."""

    def __init__(self, arena: BenchArena, path: str, *, every_s: float, address: str) -> None:
        self._arena = arena
        self._path = path
        self._every_s = every_s
        self._headers = {"X-Forwarded-For": address, PROXY_TOKEN_HEADER: PROXY_TOKEN}
        self.times_s: list[float] = []
        self.num_failures = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        async with httpx.AsyncClient(
            base_url=self._arena.url, headers=self._headers, trust_env=False, timeout=120
        ) as client:
            while True:
                began = time.monotonic()
                try:
                    self.num_failures += (await client.get(self._path)).status_code != 200
                except httpx.TransportError:
                    self.num_failures += 1
                self.times_s.append(time.monotonic() - began)
                await asyncio.sleep(max(0.0, self._every_s - self.times_s[-1]))

    def row(self) -> dict[str, Any]:
        """What it has noted, in milliseconds."""
        times = {f"p{percent}_ms": round(percentile(self.times_s, percent) * 1000, 1) for percent in (50, 95, 99)}
        most = round(max(self.times_s, default=0.0) * 1000, 1)
        return {
            "path": self._path,
            "answers": len(self.times_s),
            "failures": self.num_failures,
            **times,
            "max_ms": most,
        }


@contextmanager
def running(
    folder: Path, port: int, *, has_journal: bool = True, fill: Callable[[BenchArena], None] | None = None
) -> Iterator[BenchArena]:
    """A store and a controller on `folder`, until the block ends. `fill` is called before the controller starts."""
    folder.mkdir(parents=True, exist_ok=True)
    arena = BenchArena(folder, port, has_journal=has_journal)
    try:
        arena.start_store()
        if fill is not None:
            fill(arena)
        arena.start_controller()
        yield arena
    finally:
        arena.stop()


def peak_mb(pid: int) -> float:
    """Largest resident size of a process until now, in MB; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((round(int(line.split()[1]) / 1000, 1) for line in lines if line.startswith("VmHWM:")), 0.0)


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used, which say more than its duration on a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def _wait_until(check: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_S
    while not check():
        if process.poll() is not None or time.monotonic() > give_up_at:
            raise RuntimeError("a process of the arena did not start")
        time.sleep(0.02)
