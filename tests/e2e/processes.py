"""Processes of one arena by role. A test starts them, not `agon up`, so that each can be killed and started again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from tests.e2e.arena import free_ports

READY_S = 120.0
TOKENS_PER_S = "25"
RESTART_AFTER_S = 1.0  #: after its death, as the supervisor does
TOKENS = {
    "AGON_WORKER_TOKEN": "kills-worker-token-0123456789",
    "AGON_ADMIN_TOKEN": "kills-admin-token-0123456789",
    "AGON_PROXY_TOKEN": "kills-proxy-token-0123456789",
}
CONTROLLERS = ("controller-1", "controller-2")
WEBUIS = ("webui", "webui-2")
WORKERS = ("left-1", "left-2", "right-1", "right-2")
PROXIES = ("nginx", "caddy")
PREFIX = "/arena"  #: under which proxies serve the web UIs, and the controllers under PREFIX/api


@dataclass
class Processes:
    """The processes of one arena by role. All can be killed and started again at the same ports."""

    commands: dict[str, list[str]]
    environment: dict[str, str]
    logs: Path
    ports: dict[str, int]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    client: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False, verify=False, timeout=10))

    def start(self, role: str) -> None:
        with open(self.logs / f"{role}.log", "ab") as log:
            self.running[role] = subprocess.Popen(
                self.commands[role], env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, role: str) -> None:
        self.running[role].send_signal(signal.SIGKILL)
        self.running[role].wait()

    def restart(self, role: str) -> None:
        """As the supervisor does: some time after the death."""
        time.sleep(RESTART_AFTER_S)
        self.start(role)

    def url(self, role: str) -> str:
        return f"http://127.0.0.1:{self.ports[role]}"

    def get(self, role: str, path: str) -> httpx.Response | None:
        token = TOKENS["AGON_WORKER_TOKEN" if role in WORKERS else "AGON_ADMIN_TOKEN"]
        headers = {"Authorization": f"Bearer {token}"}
        try:
            return self.client.get(self.url(role) + path, headers=headers)
        except httpx.HTTPError:
            return None

    def wait_ready(self) -> None:
        """Wait until every process answers and both controllers route to all four workers."""
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.1)

    def wait_answer(self, url: str) -> None:
        """Wait until `url` answers with 200."""
        deadline = time.monotonic() + READY_S
        while True:
            with suppress(httpx.HTTPError):
                if self.client.get(url).status_code == 200:
                    return
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        for role in WEBUIS:
            ready = self.get(role, "/ready") if role in self.running else None
            if role in self.running and (ready is None or ready.status_code != 200):
                return False
        for role in CONTROLLERS:
            workers = self.get(role, "/arena/workers")
            if workers is None or workers.status_code != 200:
                return False
            if sum(row["state"] == "ready" and row["last_heartbeat_age_s"] < 3 for row in workers.json()) != 4:
                return False
        return True

    def busy_worker(self) -> str:
        """A worker that answers now."""
        return self._first_with(r"^agon_requests_running\S* [1-9]", WORKERS)

    def busy_controller(self) -> str:
        """A controller that runs a turn now."""
        return self._first_with(r"^arena_open_turns [1-9]", CONTROLLERS)

    def _first_with(self, line: str, roles: Iterable[str]) -> str:
        """The first service whose metrics have such a line within 10 s."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for role in roles:
                metrics = self.get(role, "/metrics")
                if metrics is not None and re.search(line, metrics.text, re.MULTILINE):
                    return role
        raise AssertionError(f"no service has {line} in its metrics")

    def votes(self) -> list[str]:
        """Battle ids of all recorded votes, from a controller that answers."""
        deadline = time.monotonic() + READY_S
        while True:
            for role in CONTROLLERS:
                answer = self.get(role, "/arena/votes")
                if answer is not None and answer.status_code == 200:
                    return [json.loads(line)["battle_id"] for line in answer.text.splitlines()]
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.1)

    def report(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.logs.glob("*.log")))


@contextmanager
def echo_processes(folder: Path) -> Iterator[Processes]:
    """A store, two controllers, two workers for each of two echo models, and a web UI under the path prefix; the second
    web UI is not started. All know what they need behind a proxy on this machine."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "echo"}))
    store = EmbeddedRedis(folder / "store", find_binary())
    store.prepare()
    roles = (*CONTROLLERS, *WEBUIS, *WORKERS, *PROXIES)
    first = free_ports(len(roles) - 2).controller
    ports = {role: first + number for number, role in enumerate(roles)}
    urls = [f"http://127.0.0.1:{ports[role]}" for role in CONTROLLERS]

    def service(package: str, role: str, *flags: str) -> list[str]:
        return [sys.executable, "-P", "-m", package, "--port", str(ports[role]), *flags]

    commands = {
        "store": list(store.command),
        **{role: service("controller", role) for role in CONTROLLERS},
        **{role: service("webui", role, "--controller", ",".join(urls)) for role in WEBUIS},
        **{
            role: service(
                *("model_worker", role, "--model", f"{role.partition('-')[0]}={model}", "--engine", "echo"),
                *("--controller", urls[0], "--controller", urls[1]),
            )
            for role in WORKERS
        },
    }
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AGON_", "REDIS_"))}
    settings = {
        "AGON_REDIS_URL": store.url,
        "AGON_ECHO_TOKENS_PER_S": TOKENS_PER_S,
        "AGON_WEBUI_UNDO_S": "1",
        "AGON_VOTE_RATE_BURST": "100",
        "AGON_API_DOCS": "true",
        "AGON_ROOT_PATH": f"{PREFIX}/api",
        "AGON_TRUSTED_PROXIES": "127.0.0.1/32",
        "AGON_WEBUI_ROOT_PATH": PREFIX,
        "AGON_WEBUI_TRUSTED_PROXIES": "127.0.0.1",
        "AGON_WEBUI_PEERS": ",".join(f"http://127.0.0.1:{ports[role]}" for role in WEBUIS),
    }
    found = Processes(commands, {**own, **TOKENS, **settings}, folder, ports)
    try:
        for role in commands:
            if role != WEBUIS[1]:
                found.start(role)
        found.wait_ready()
        yield found
    finally:
        found.client.close()
        for process in found.running.values():
            process.kill()
            process.wait()
