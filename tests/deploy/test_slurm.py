"""The Slurm script: what its linter says, and what it does where `srun`, `ip` and `agon` are programs of this test."""

import os
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "deploy" / "slurm" / "agon-workers.sbatch"
SHELLCHECK = Path(sysconfig.get_path("scripts")) / "shellcheck"
PATIENCE_S = 60
#: The task is a process group of its own, whose number is noted. Slurm signals all of it, but not the batch shell.
_SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
setsid "$@" &
echo $! > task
wait $!
"""
_IP = '#!/bin/bash\necho "$4 dev eth0 src 10.1.0.7 uid 0"\n'
#: Notes how it was called, once it heeds SIGTERM; ends with the numbers in CODES in turn, or waits for that signal.
_AGON = """#!/bin/bash
trap 'echo drained >> calls; exit 0' TERM
echo "$1 $AGON_MODEL $AGON_HOST:$AGON_PORT $AGON_CONTROLLER_URLS $AGON_THREADS $AGON_WORKER_TOKEN_FILE" >> calls
read -r code rest < codes
echo "$rest" > codes
[ "$code" = wait ] || exit "$code"
while true; do sleep 0.05; done
"""


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """The environment of a job; its programs lie in a folder of its own."""
    for name, text in (("srun", _SRUN), ("ip", _IP), ("agon", _AGON)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "AGON_HEAD": "http://127.0.0.1:8100,http://127.0.0.2:8100",
        "AGON_MODEL": "qwen=/models/qwen",
        "AGON_WORKER_TOKEN_FILE": "/token",
        "SLURM_CPUS_PER_TASK": "8",
    }


def start(node: dict[str, str], folder: Path, codes: str) -> subprocess.Popen[bytes]:
    (folder / "codes").write_text(f"{codes}\n")
    return subprocess.Popen(["bash", str(SCRIPT)], cwd=folder, env=node, start_new_session=True)


def test_the_linter_has_nothing_to_say() -> None:
    answer = subprocess.run([str(SHELLCHECK), str(SCRIPT)], capture_output=True, text=True, check=False)
    assert answer.stdout == ""


def test_a_worker_listens_on_the_address_that_reaches_the_controller(node: dict[str, str], tmp_path: Path) -> None:
    assert start(node, tmp_path, "0").wait(timeout=PATIENCE_S) == 0
    controllers = "http://127.0.0.1:8100,http://127.0.0.2:8100"
    expected = f"worker qwen=/models/qwen 10.1.0.7:8200 {controllers} 8 /token\n"
    assert (tmp_path / "calls").read_text() == expected


@pytest.mark.parametrize(("codes", "num_calls", "code"), [("4 0", 2, 0), ("2", 1, 2), ("4 3", 2, 3)])
def test_a_worker_that_dies_is_started_again(
    codes: str, num_calls: int, code: int, node: dict[str, str], tmp_path: Path
) -> None:
    assert start(node, tmp_path, codes).wait(timeout=PATIENCE_S) == code
    assert len((tmp_path / "calls").read_text().splitlines()) == num_calls


def test_a_worker_has_drained_when_the_job_ends(node: dict[str, str], tmp_path: Path) -> None:
    job = start(node, tmp_path, "wait")
    calls = tmp_path / "calls"
    give_up_at = time.monotonic() + PATIENCE_S
    while not calls.exists():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    os.killpg(int((tmp_path / "task").read_text()), signal.SIGTERM)
    assert job.wait(timeout=PATIENCE_S) == 0
    assert calls.read_text().splitlines()[-1] == "drained"


def test_no_worker_is_started_once_the_job_ends(node: dict[str, str], tmp_path: Path) -> None:
    pause = tmp_path / "bin" / "sleep"
    pause.write_text('#!/bin/bash\nkill -TERM "$PPID"\n')
    pause.chmod(0o755)
    assert start(node, tmp_path, "4 0").wait(timeout=PATIENCE_S) == 4
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize("name", ["AGON_HEAD", "AGON_MODEL", "AGON_WORKER_TOKEN_FILE"])
def test_what_is_missing_is_named(name: str, node: dict[str, str], tmp_path: Path) -> None:
    del node[name]
    answer = subprocess.run(["bash", str(SCRIPT)], cwd=tmp_path, env=node, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert name in answer.stderr
