"""A real arena for a measurement: `agon up` as a user starts it, in a folder and on ports of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

START_TIMEOUT_S = 180.0
NUM_DEMO_MODELS = 4


@dataclass(frozen=True)
class Arena:
    """A running arena; `started_s` is how long it took until every model was served."""

    url: str
    worker_url: str  #: of the first of its workers
    supervisor_pid: int
    started_s: float

    def processes(self, command: str) -> list[int]:
        """Process ids of the arena's services whose command line holds `command`, e.g. "model_worker"."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if parent == self.supervisor_pid and command in arguments:
                found.append(int(entry.name))
        return found


@contextmanager
def running_arena(
    data_dir: Path,
    models: Sequence[str],
    *options: str,
    settings: Mapping[str, str] | None = None,
    api_key: str | None = None,
) -> Iterator[Arena]:
    """Start an arena with `models` (each NAME=FOLDER; none: the demo models) and stop it at the end.

    `settings` are environment variables; the services read theirs, e.g. AGON_LOAD_FORMAT. `api_key` opens /v1 of the
    controller and of the workers, which else answer their controller only.

    Raises:
        RuntimeError: it did not become ready in time; the message holds the end of its output.
    """
    ports = [_free_port() for _ in range(3)]
    command = [sys.executable, "-m", "cli.main", "up", "--data-dir", str(data_dir)]
    command += ["--controller-port", str(ports[0]), "--webui-port", str(ports[1]), "--worker-port", str(ports[2])]
    for model in models:
        command += ["--model", model]
    log = data_dir / "up.log"
    data_dir.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as output:
        environment = {**os.environ, **(settings or {}), "PYTHONUNBUFFERED": "1"}
        environment |= {"AGON_API_KEYS": api_key} if api_key else {}
        process = subprocess.Popen([*command, *options], stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        url = f"http://127.0.0.1:{ports[0]}"
        _wait_until_served(url, len(models) or NUM_DEMO_MODELS, api_key, process, log)
        yield Arena(url, f"http://127.0.0.1:{ports[2]}", process.pid, time.monotonic() - started)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _wait_until_served(
    url: str, num_models: int, api_key: str | None, process: "subprocess.Popen[bytes]", log: Path
) -> None:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if len(httpx.get(f"{url}/v1/models", headers=headers, timeout=2).json()["data"]) >= num_models:
                return
        except (httpx.HTTPError, KeyError, ValueError):
            pass
        time.sleep(0.1)
    raise RuntimeError(f"The arena did not become ready:\n{log.read_text(errors='replace')[-3000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
