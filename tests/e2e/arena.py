"""A real arena for tests: `agon up` as its own process, and its children, found through /proc."""

import contextlib
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from service_kit.trust import trust
from wire.sse import SseDecoder

READY_S = 240.0  #: a limit for a busy machine, not an expectation
_POLL_S = 0.1
#: Tests begin battles and vote faster than people.
_RATES = {f"AGON_{kind}_RATE_{limit}": "100000" for kind in ("VOTE", "BATTLE") for limit in ("PER_MINUTE", "BURST")}


@dataclass(frozen=True)
class Ports:
    controller: int
    webui: int
    first_worker: int


def free_ports(num_workers: int) -> Ports:
    """A run of ports that are free now, below the range that the kernel gives to clients."""
    for _ in range(200):
        first = random.randrange(12_000, 30_000)
        if all(_is_free(port) for port in range(first, first + 2 + num_workers)):
            return Ports(first, first + 1, first + 2)
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class UpProcess:
    """One `agon up`. `output` is what it printed so far."""

    def __init__(
        self,
        data_dir: Path,
        flags: list[str],
        ports: Ports,
        environment: Mapping[str, str],
        working_folder: Path | None = None,
    ) -> None:
        self.data_dir = data_dir
        scheme = "https" if "AGON_TLS_CERT_FILE" in environment else "http"
        self.trusted = trust(Path(environment["AGON_CA_FILE"]) if "AGON_CA_FILE" in environment else None)
        self.controller_url = f"{scheme}://127.0.0.1:{ports.controller}"
        self.webui_url = f"{scheme}://127.0.0.1:{ports.webui}"
        self._log = data_dir.parent / f"{data_dir.name}-up.log"
        self.command = [
            *(sys.executable, "-P", "-m", "cli.main", "up", "--data-dir", str(data_dir)),
            *("--controller-port", str(ports.controller), "--webui-port", str(ports.webui)),
            *("--worker-port", str(ports.first_worker), *flags),
        ]
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AGON_", "REDIS_"))}
        self.environment = {
            **own,
            **_RATES,
            "AGON_MIN_READ_S": "0",
            "AGON_PACED": "0",
            "AGON_JUDGE_EVERY_S": "0",
            **environment,
        }
        self.started = time.monotonic()
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
                cwd=working_folder,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_ready(self) -> float:
        """Wait until the arena reports that it is ready; returns the seconds since the start."""
        while "The arena is ready" not in self.output:
            assert self.process.poll() is None, self.report()
            assert time.monotonic() - self.started < READY_S, self.report()
            time.sleep(_POLL_S)
        return time.monotonic() - self.started

    def heartbeat_ages(self) -> dict[str, float]:
        """Seconds since the last heartbeat of each ready worker, by model; empty while the controller is silent."""
        url = f"{self.controller_url}/arena/workers"
        try:
            token = json.loads((self.data_dir / "secrets.json").read_text())["admin_token"]
            headers = {"Authorization": f"Bearer {token}"}
            rows = httpx.get(url, headers=headers, trust_env=False, verify=self.trusted).raise_for_status().json()
        except (httpx.HTTPError, OSError):
            return {}
        return {row["model"]: row["last_heartbeat_age_s"] for row in rows if row["state"] == "ready"}

    def wait_workers(self, *models: str, heard_since: float = -math.inf) -> None:
        """Wait until each model has a ready worker with a heartbeat after `heard_since` (monotonic)."""
        deadline = time.monotonic() + READY_S
        while True:
            silent_for = time.monotonic() - heard_since
            ages = self.heartbeat_ages()
            if all(ages.get(model, math.inf) < silent_for for model in models):
                return
            assert time.monotonic() < deadline, self.report()
            time.sleep(_POLL_S)

    def children(self) -> dict[str, int]:
        """Process ids by role: store, controller, webui, worker; with --isolate the model's name for each worker."""
        found = {}
        for pid in _children_of(self.process.pid):
            with contextlib.suppress(OSError):
                role = _role(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0"))
                if role is not None:
                    found[role] = pid
        return found

    def command_line(self, role: str) -> list[str]:
        """The words of the command of one child."""
        return Path(f"/proc/{self.children()[role]}/cmdline").read_text().split("\0")

    def kill(self, role: str) -> int:
        """kill -9 one child; returns the pid that it had."""
        pid = self.children()[role]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_replaced(self, role: str, pid: int) -> None:
        deadline = time.monotonic() + READY_S
        while self.children().get(role) in (pid, None):
            assert time.monotonic() < deadline, self.report()
            time.sleep(_POLL_S)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send the signal, as Ctrl-C does, and wait; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=120)

    def report(self) -> str:
        logs = sorted((self.data_dir / "logs").glob("*.log"))
        parts = [f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs]
        return "\n".join([self.output[-3000:], *parts])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids: list[int], timeout_s: float = 30.0) -> list[int]:
    """Wait until the processes have ended; returns those that are alive after the time."""
    deadline = time.monotonic() + timeout_s
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return [pid for pid in pids if is_alive(pid)]


@contextlib.contextmanager
def arena(
    data_dir: Path, flags: list[str], num_workers: int, working_folder: Path | None = None, /, **environment: str
) -> Iterator[UpProcess]:
    """An arena that was started and may not be ready yet. All its processes are killed when the block is left."""
    up = UpProcess(data_dir, flags, free_ports(num_workers), environment, working_folder)
    try:
        yield up
    finally:
        pids = list(up.children().values())
        with contextlib.suppress(subprocess.TimeoutExpired):
            up.stop()
        up.process.kill()
        up.process.wait()
        for pid in wait_gone(pids):
            os.kill(pid, signal.SIGKILL)


def take_turn(client: httpx.Client, battle_id: str, content: str) -> Generator[tuple[str, dict[str, Any]], None, None]:
    """Take a turn; yields name and data of its events as they arrive."""
    url = f"/arena/battles/{battle_id}/turns"
    with client.stream("POST", url, json={"content": content}) as answer:
        assert answer.status_code == 200, answer.read()
        decoder = SseDecoder()
        for chunk in answer.iter_raw():
            for event in decoder.feed(chunk):
                yield event.event, json.loads(event.data)


def _children_of(parent: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                children.append(int(stat.parent.name))
    return children


def _role(command: list[str]) -> str | None:
    if any(word.endswith("store.conf") for word in command) or "valkey-server" in command[0]:
        return "store"
    if "-m" not in command:
        return None  # the tether, before it becomes the service
    package = command[command.index("-m") + 1]
    if package == "model_worker":
        return command[command.index("--model") + 1].partition("=")[0] if command.count("--model") == 1 else "worker"
    return package
