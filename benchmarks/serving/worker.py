"""One `agon serve` as a process of its own; its log says where it listens and when it is ready."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    url: str
    pid: int
    spawned_s: float  #: time.perf_counter() just before the process was made


@contextmanager
def served_model(model: Path, *options: str) -> Iterator[ServedModel]:
    """Yields when the model is loaded. Raises RuntimeError with the worker's output if it does not load."""
    command = [sys.executable, "-m", "cli.main", "serve", str(model), "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGON_")}
    with tempfile.TemporaryDirectory(prefix="agon-bench-") as folder:
        log = Path(folder) / "serve.log"
        with log.open("wb") as output:
            spawned = time.perf_counter()
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            yield ServedModel(f"http://127.0.0.1:{_port(log, process)}", process.pid, spawned)
        finally:
            process.terminate()
            process.wait(60)


def _port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    """The port on which the worker listens, once the model is loaded."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = log.read_text(errors="replace").splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        ports = [int(event["port"]) for event in events if event.get("event") == "listening"]
        if ports and any(event.get("event") == "ready" for event in events):
            return ports[0]
        time.sleep(0.01)
    raise RuntimeError(f"agon serve did not start:\n{log.read_text(errors='replace')[-3000:]}")
