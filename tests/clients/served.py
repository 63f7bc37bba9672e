"""A worker or an arena with one model, for as long as the clients need it."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

START_S = 180.0


class Server(NamedTuple):
    """Where a server is. `log`: the file of its stdout, if it is ours."""

    url: str
    log: Path | None = None


@contextmanager
def served(checkpoint: Path, model: str, through: Literal["worker", "arena", "script"]) -> Iterator[Server]:
    """A worker, an arena or a worker whose model is scripted; raises RuntimeError if it does not come up."""
    worker, controller, webui = (_free_port() for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        if through == "worker":
            port, arguments = worker, ["cli.main", "serve", f"{model}={checkpoint}", "--port", str(worker)]
        elif through == "script":
            port, arguments = worker, ["tests.clients.scripted", f"{model}={checkpoint}", str(worker)]
        else:
            ports = ["--worker-port", worker, "--controller-port", controller, "--webui-port", webui]
            port, arguments = controller, ["cli.main", "up", "--model", f"{model}={checkpoint}", "--data-dir", folder]
            arguments += [str(part) for part in ports]
        log = Path(folder) / "server.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=written,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, model, process, log)
            yield Server(url, log)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(url: str, model: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the model is loaded: then its entry has a context length."""
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/v1/models/{model}", timeout=5) as answer:
                if json.load(answer)["max_model_len"] is not None:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the server did not come up:\n{log.read_text()[-3000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
