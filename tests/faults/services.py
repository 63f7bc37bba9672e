"""The processes of an arena under test: started warm by fork servers, killed, stopped and watched.

Commands and environments are those of `agon up` (cli/arena/processes.py), so a setting that it passes is tested, too.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tests.faults.fork_server import TASKS_FILE

START_S = 60.0  #: a limit for a busy machine
_POLL_S = 0.004


class ForkServer:
    """One `tests.faults.fork_server`. It dies, and its children with it, when its input is closed."""

    def __init__(self, package: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.fork_server", package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            text=True,
        )
        self._package = package
        self._is_ready = False

    def fork(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> int:
        """Start one child; returns its process id."""
        assert self._process.stdin is not None
        request = {"arguments": arguments, "environment": dict(environment), "log": str(log)}
        if not self._is_ready:
            assert self._answer() == "ready"
            self._is_ready = True
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def close(self) -> None:
        """End the server; the kernel kills its children."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, f"the fork server of {self._package} has died"
        return line


class ForkServers:
    """The fork servers of a session, started on demand and shared by its scenarios: imports are paid once."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, frozenset[tuple[str, str]]], ForkServer] = {}

    def get(self, package: str, environment: Mapping[str, str]) -> ForkServer:
        """The server that was started with this environment. Children may get another one, except for what a service
        or the loader reads before the fork."""
        key = (package, frozenset(environment.items()))
        if key not in self._servers:
            self._servers[key] = ForkServer(package, environment)
        return self._servers[key]

    def close(self) -> None:
        """End all servers and their children."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()


class Service:
    """One process of the arena, which may die and start again any number of times.

    `probe` tells if it is ready; `before_start` is what the supervisor does before a start.
    """

    def __init__(
        self,
        name: str,
        server: ForkServer,
        arguments: list[str],
        environment: Mapping[str, str],
        log: Path,
        probe: Callable[[], Awaitable[bool]],
        before_start: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.environment = {**environment, TASKS_FILE: str(log.with_suffix(".tasks"))}
        self.log = log
        self.pid: int | None = None
        self.num_starts = 0
        self.started_at = 0.0  #: monotonic
        self.num_faults = 0  #: kills, and beginnings and ends of stops
        self.should_run = False
        self._server = server
        self._probe = probe
        self._before_start = before_start

    def start(self) -> None:
        """Start the process; returns at once. Raises what `before_start` raises."""
        assert self.pid is None or not is_alive(self.pid)
        if self._before_start is not None:
            self._before_start()
        self.pid = self._server.fork(self.arguments, self.environment, self.log)
        self.num_starts += 1
        self.started_at = time.monotonic()
        self.should_run = True

    async def wait_ready(self, timeout_s: float = START_S) -> float:
        """Wait until the probe succeeds; returns the seconds that this took. A process that dies meanwhile fails."""
        started = time.monotonic()
        while not await self._probe():
            assert self.is_alive, f"{self.name} died while it started:\n{self.tail()}"
            assert time.monotonic() - started < timeout_s, f"{self.name} does not get ready:\n{self.tail()}"
            await asyncio.sleep(_POLL_S)
        return time.monotonic() - started

    async def is_ready(self) -> bool:
        """Whether the probe succeeds now."""
        return await self._probe()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs; stopped counts as running."""
        return self.pid is not None and is_alive(self.pid)

    async def kill(self) -> float:
        """kill -9, and wait until the process is gone; returns the monotonic time of the signal."""
        assert self.pid is not None
        self.should_run = False
        self.num_faults += 1
        killed_at = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        while is_alive(self.pid):
            await asyncio.sleep(_POLL_S / 4)
        return killed_at

    async def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after some seconds."""
        self.num_faults += 1
        self._signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._signal(signal.SIGCONT)
            self.num_faults += 1

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def rss_bytes(self) -> int:
        """Resident memory now; 0 without a process."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def num_descriptors(self) -> tuple[int, int]:
        """Open file descriptors now: connections to Unix sockets, which are those to the store, and all others."""
        targets = []
        with contextlib.suppress(OSError):  # no process
            for entry in os.scandir(f"/proc/{self.pid}/fd"):
                with contextlib.suppress(OSError):  # closed meanwhile
                    targets.append(os.readlink(entry.path))
        lines = Path("/proc/net/unix").read_text().splitlines()[1:]
        unix = {f"socket:[{line.split()[6]}]" for line in lines}
        num_unix = sum(target in unix for target in targets)
        return num_unix, len(targets) - num_unix

    async def task_names(self) -> list[str]:
        """Names of the coroutines of all asyncio tasks in the process, by its own count."""
        path = self.log.with_suffix(".tasks")
        path.unlink(missing_ok=True)
        self._signal(signal.SIGUSR2)
        deadline = time.monotonic() + 5
        while not path.exists():
            assert time.monotonic() < deadline, f"{self.name} did not report its tasks"
            await asyncio.sleep(_POLL_S)
        names: list[str] = json.loads(path.read_text())
        return names

    def tail(self, num_bytes: int = 2500) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-num_bytes:] if self.log.exists() else ""


def is_alive(pid: int) -> bool:
    """Whether the process exists. A fork server reaps its children at once, so a process that exists has threads left,
    and with them its sockets."""
    return Path(f"/proc/{pid}").exists()
