"""Hosts on one Linux machine: network namespaces on one wire, each with an address and a loopback. Needs root.

Processes of a host share files with all others, and nothing of the network.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
NETWORK = "10.231.0"
PATIENCE_S = 240.0  #: a limit for a busy machine, not an expectation


@dataclass
class Host:
    """One host. `run` and `start` take the arguments of `python -m`."""

    namespace: str
    address: str
    folder: Path
    _started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def run(self, *arguments: str, environment: Mapping[str, str] = {}, code: int = 0) -> str:
        """Both outputs of a command. `code`: what it must exit with."""
        return self._run([*self._python, *arguments], code, environment)

    def run_shell(self, script: str) -> str:
        """Both outputs of a shell script, which must succeed."""
        return self._run(["bash", "-c", script], 0, {})

    def _run(self, command: Sequence[str], code: int, environment: Mapping[str, str]) -> str:
        done = subprocess.run(
            [*self._inside, *command],
            env=_environment(environment),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, (command, done.returncode, done.stdout)
        return done.stdout

    def start(self, name: str, *arguments: str, environment: Mapping[str, str] = {}) -> "Running":
        """Start a command in the background; `name` is that of its log."""
        return self._start(name, [*self._python, *arguments], environment)

    def start_shell(self, name: str, script: str, environment: Mapping[str, str]) -> "Running":
        """Start a shell script in the background."""
        return self._start(name, ["bash", "-c", script], environment)

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> "Running":
        log = self.folder / f"{name}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [*self._inside, *command],
                env=_environment(environment),
                cwd=self.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return Running(process, log)

    def pids_of(self, module: str) -> list[int]:
        """The processes of the host that run a module."""
        listed = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        pids = [int(line) for line in listed.stdout.split()]
        return [pid for pid in pids if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]

    @property
    def _inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace)

    @property
    def _python(self) -> tuple[str, ...]:
        return (sys.executable, "-P", "-m")

    def end(self) -> None:
        """End everything that still runs."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self._started:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@dataclass(frozen=True)
class Running:
    """A command in the background, and its output."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Wait until the output has `text` after so many characters; returns where it ends."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.output.find(text, after)) < 0:
            assert self.process.poll() is None, f"{self.log.name} has ended:\n{self.output[-3000:]}"
            assert time.monotonic() < deadline, f"{self.log.name} never said {text!r}:\n{self.output[-3000:]}"
            time.sleep(0.1)
        return found + len(text)

    def stop(self) -> None:
        """Ctrl-C, and wait."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


@contextlib.contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """So many hosts with the addresses 10.231.0.1 and so on, on one bridge."""
    tag = f"agon{os.getpid()}"
    switch = f"{tag}-s"
    names = [f"{tag}-{number}" for number in range(1, count + 1)]
    made: list[Host] = []
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(names, start=1):
            _ip("netns", "add", name)
            _ip("-n", switch, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            (folder / name).mkdir(parents=True)
            made.append(Host(name, f"{NETWORK}.{number}", folder / name))
        yield made
    finally:
        for host in reversed(made):  # those that joined before the one that they joined
            host.end()
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ip {' '.join(arguments)}: {done.stderr.strip()} (network namespaces need root)")


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AGON_", "REDIS_"))}
    return {**own, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200", **given}
