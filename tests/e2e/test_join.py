"""`agon join`: a worker beside a running arena, as on another machine. tests/two_hosts has hosts of their own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.e2e.arena import UpProcess, free_ports


def test_a_joined_worker_serves_and_leaves(
    echo_arena: UpProcess, echo_flags: list[str], client: httpx.Client, tmp_path: Path
) -> None:
    folder = echo_flags[-1].partition("=")[2]
    token = echo_arena.data_dir / "worker.token"
    command = [sys.executable, "-P", "-m", "cli.main", "join", echo_arena.controller_url, "--token-file", str(token)]
    command += ["--model", f"third={folder}", "--engine", "echo", "--data-dir", str(tmp_path)]
    command += ["--port", str(free_ports(1).first_worker)]
    environment = {**echo_arena.environment, "AGON_ECHO_TOKENS_PER_S": "500"}
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while "third: served in the arena of" not in (text := (tmp_path / "out").read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        assert f"checked: the controller at {echo_arena.controller_url}" in text
        assert "third" in [row["model"] for row in client.get("/arena/workers").json()]
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
    assert (code, "nothing is left running" in (tmp_path / "out").read_text()) == (0, True)
    assert "third" not in [row["model"] for row in client.get("/arena/workers").json()]
