"""Machines of a cluster as processes of this one: `agon up --placement ray`, and an `agon cluster join` for each."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from cli.arena.placement.control import Question, ask
from cli.arena.placement.fleet import FleetView
from cli.arena.placement.on_ray.cluster import temp_dir
from cli.arena.placement.on_ray.services import outward_address
from cli.arena.placement.placement import ReplicaView
from tests.e2e.arena import UpProcess, free_ports

WAIT_S = 90.0  #: a limit for a busy machine, not an expectation
_POLL_S = 0.02


class JoinedMachine:
    """One `agon cluster join`, with its raylet and what Ray starts there."""

    def __init__(self, cluster: "RunningCluster", name: str, *flags: str) -> None:
        self.name = name
        self._log = cluster.folder / f"{name}.log"
        command = [
            *(sys.executable, "-P", "-m", "cli.main", "cluster", "join", cluster.head, "--name", name),
            *("--token-file", str(cluster.token_file), "--host", "127.0.0.1"),
            *("--data-dir", str(cluster.folder / name), *flags),
        ]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=cluster.environment, start_new_session=True
            )

    def pids(self) -> list[int]:
        """Every process of the machine."""
        return descendants(self._process.pid)

    def has_spare(self) -> bool:
        """Whether Ray's process for the next actor waits here."""
        return any(command_of(pid)[:1] == ["ray::IDLE"] for pid in self.pids())

    def die(self) -> None:
        """The raylet is killed, and nothing of the machine comes back."""
        self._process.kill()
        for pid in self.pids():
            if command_of(pid)[:1] and "raylet/raylet" in command_of(pid)[0]:
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def leave(self) -> None:
        """End it in order."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        pids = self.pids()
        self._process.kill()
        self._process.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class RunningCluster:
    """An arena whose workers are placed by Ray, without a worker on its own machine."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.model = folder / "echo"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps({"model_type": "echo"}))
        ports = free_ports(3)
        self.head_port = ports.first_worker + 1
        flags = ["--no-demos", "--engine", "echo", "--placement", "ray", "--cluster-port", str(self.head_port)]
        flags += ["--cluster-cpus", "0", "--cluster-gpus", "0"]
        self.up = UpProcess(folder / "head", flags, ports, environment)
        self.environment = self.up.environment
        self.token_file = folder / "token"
        self.machines: dict[str, JoinedMachine] = {}

    @property
    def head(self) -> str:
        """For `agon cluster join`."""
        return f"{outward_address()}:{self.head_port}"

    def secrets(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.up.data_dir / "secrets.json").read_text())
        return found

    def join(self, name: str, *flags: str) -> JoinedMachine:
        """A further machine; it may not have joined yet."""
        self.token_file.write_text(self.secrets()["worker_token"])
        self.machines[name] = JoinedMachine(self, name, *flags)
        return self.machines[name]

    def view(self) -> FleetView:
        view = ask(self.up.data_dir, Question())
        assert view is not None, self.up.report()
        return view

    def agon(self, *arguments: str) -> str:
        """Run a command against the arena; returns what it printed."""
        command = [sys.executable, "-P", "-m", "cli.main", *arguments, "--data-dir", str(self.up.data_dir)]
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": WAIT_S, "check": False}
        done: subprocess.CompletedProcess[str] = subprocess.run(command, env=self.environment, **options)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def last_loss(self) -> float:
        """When Ray's head noticed the last loss of a machine (seconds since 1970), by its log."""
        log = temp_dir(self.up.data_dir / "cluster", "head") / "session_latest" / "logs" / "gcs_server.out"
        *_, last = re.findall(r"^\[([\d-]+ [\d:]+,\d+).*marked dead", log.read_text(errors="replace"), re.MULTILINE)
        return datetime.strptime(last, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()

    def replicas(self, model: str) -> list[ReplicaView]:
        return [replica for replica in self.view().placement.replicas if replica.model == model]

    def registered(self, model: str) -> dict[str, float]:
        """Ready workers of a model: URLs, with the ages of their heartbeats, as the controller knows them."""
        headers = {"Authorization": f"Bearer {self.secrets()['admin_token']}"}
        with httpx.Client(headers=headers, trust_env=False, timeout=10, verify=self.up.trusted) as client:
            rows: list[dict[str, Any]] = client.get(f"{self.up.controller_url}/arena/workers").json()
        return {
            row["worker_id"]: row["last_heartbeat_age_s"]
            for row in rows
            if row["model"] == model and row["state"] == "ready"
        }

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> float:
        """Wait until the condition holds; returns the seconds."""
        started = time.monotonic()
        while not condition():
            assert time.monotonic() - started < timeout_s, f"{what}: {self.view()}\n{self.up.report()}"
            time.sleep(_POLL_S)
        return time.monotonic() - started


@contextlib.contextmanager
def running_cluster(folder: Path, machines: dict[str, list[str]], **environment: str) -> Iterator[RunningCluster]:
    """A ready arena with these machines, by name with flags of `agon cluster join`. Nothing is left afterwards."""
    cluster = RunningCluster(folder, **environment)
    try:
        cluster.wait("secrets", (cluster.up.data_dir / "secrets.json").exists)
        for name, flags in machines.items():
            cluster.join(name, *flags)
        cluster.up.wait_ready()
        wanted = set(machines)
        cluster.wait(
            "machines", lambda: wanted <= {one.name for one in cluster.view().placement.machines if one.is_alive}
        )
        yield cluster
    finally:
        pids = descendants(cluster.up.process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            cluster.up.stop()
        cluster.up.process.kill()
        cluster.up.process.wait()
        for machine in cluster.machines.values():
            machine.leave()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """All processes below `root`, itself not."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, new = [], [root]
    while new:
        new = [child for parent in new for child in parents.get(parent, [])]
        found += new
    return found


def started_at(pid: int) -> float:
    """When a process was started, in seconds since 1970 and to a hundredth of a second."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")


def command_of(pid: int) -> list[str]:
    """The words of a command line; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
